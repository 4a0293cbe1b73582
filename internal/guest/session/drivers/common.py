# What the drivers in Python share. f (descriptor 3) brings "ID BYTES\nCODE", descriptor 4 takes what is said of cells, a JSON line each. 0 to 2 belong to the cells.
import sys

# A cell's folder may have a file of a module's name: it is the cells' to import, and not this driver's.
folder = sys.path[:1] == ['']
if folder:
    del sys.path[0]
import io, json, os, signal

sys.stdout = io.TextIOWrapper(os.fdopen(1, 'wb', closefd=False), 'utf-8', errors='backslashreplace', line_buffering=True)
sys.stderr = io.TextIOWrapper(os.fdopen(2, 'wb', closefd=False), 'utf-8', errors='backslashreplace', write_through=True)
me = os.getpid()
MOST = 500000  # characters of a value
MOST_LINE = 4000000  # bytes of what is said

for fd in (3, 4):
    os.set_inheritable(fd, False)


def forked():
    for fd in (3, 4):
        try:
            os.close(fd)
        except OSError:
            pass


os.register_at_fork(after_in_child=forked)


def encode(what):
    return json.dumps(what, ensure_ascii=False, default=str).encode(errors='replace') + b'\n'


def say(**what):
    data = encode(what)
    while data:
        data = data[os.write(4, data):]


def cut(text):
    more = len(text) - MOST
    return text if more <= 0 else text[:MOST] + '... (%d characters more)' % more


def show(id, data, metadata, result):
    flush()
    what = dict(id=id, display=data, metadata=metadata or {}, result=result)
    large = {k: len(encode(v)) for k, v in data.items()}
    while len(encode(what)) > MOST_LINE:  # the largest goes first: the text that stands beside a picture stays
        largest = max(what['display'], key=large.get) if what['display'] else None
        what['metadata'] = {}
        what['display'] = {k: v for k, v in what['display'].items() if k != largest}
        what['display'].setdefault('text/plain', '%s of %d bytes is too large to be shown' % (largest, large.get(largest, 0)))
        large.setdefault('text/plain', 0)
    say(**what)


def flush():
    for s in (sys.stdout, sys.stderr):
        try:
            s.flush()
        except Exception:
            pass


inside = set()  # the code of functions that an interrupt breaks off; it never breaks off the driver itself. Their first says that the cell has begun


def breakable(function):
    inside.add(function.__code__)
    return function


def interrupt(number, frame):
    while frame is not None:
        if frame.f_code in inside:
            raise KeyboardInterrupt
        frame = frame.f_back


@breakable
def finish():
    import atexit
    atexit._run_exitfuncs()


def serve(run):
    signal.signal(signal.SIGINT, interrupt)
    if folder:
        sys.path.insert(0, '')
    say(ready=True)
    while True:
        head = f.readline()
        if not head:
            os._exit(0)
        id, n = (int(x) for x in head.split())
        code = f.read(n)
        end = {'id': id, 'ok': True}
        signal.signal(signal.SIGINT, interrupt)  # a cell may have changed it
        try:
            end.update(run(id, code.decode()))
        except BaseException as e:  # of showing an error, which is code of the cell's
            end.update(ok=False, error=type(e).__name__[:1000])
            if isinstance(e, UnicodeDecodeError):  # the code is no text
                print(e, file=sys.stderr)
        if 'exit' in end and os.getpid() == me:
            try:
                finish()
            except BaseException:
                pass
        flush()
        if os.getpid() != me:  # a child of fork that came to the cell's end
            os._exit(end.get('exit', 0 if end['ok'] else 1))
        say(**end)
        if 'exit' in end:
            os._exit(end['exit'])


def exit_code(e):
    if e.code is None or isinstance(e.code, int):
        return (e.code or 0) & 255
    print(e.code, file=sys.stderr)
    return 1
