# Runs cells. f (descriptor 3) brings "ID BYTES\nCODE", descriptor 4 takes what is said of them, a JSON line each. 0 to 2 belong to the cells.
import ast, asyncio, builtins, inspect, io, json, linecache, os, signal, sys, traceback, types

def driver(f):
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    me = os.getpid()
    sys.stdout = io.TextIOWrapper(os.fdopen(1, 'wb', closefd=False), 'utf-8', errors='backslashreplace', line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, 'wb', closefd=False), 'utf-8', errors='backslashreplace', write_through=True)
    module = sys.modules['__main__'] = types.ModuleType('__main__')
    names = module.__dict__
    names['__builtins__'] = builtins
    names.pop('__loader__', None)
    if '' not in sys.path:
        sys.path.insert(0, '')
    loop = None

    def say(**what):
        data = json.dumps(what).encode() + b'\n'
        while data:
            data = data[os.write(4, data):]

    def go(code):
        nonlocal loop
        r = eval(code, names)
        if inspect.iscoroutine(r):
            if loop is None or loop.is_closed():
                loop = asyncio.new_event_loop()
                asyncio.set_event_loop(loop)
            return loop.run_until_complete(r)
        return r

    def run(name, source):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            go(compile(tree, name, 'exec', flags))
        if last is None:
            return None
        v = go(compile(ast.Expression(last.value), name, 'eval', flags))
        if v is None:
            return None
        names['_'] = v
        return repr(v)

    def own(tb):  # from the cell's first frame on; an error of syntax has none
        while tb and not tb.tb_frame.f_code.co_filename.startswith('<cell '):
            tb = tb.tb_next
        return tb

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(ready=True)
    while True:
        head = f.readline()
        if not head:
            os._exit(0)
        id, n = (int(x) for x in head.split())
        code = f.read(n)
        end = {'id': id, 'ok': True}
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            v = run('<cell %d>' % id, code.decode())
            if v is not None:
                end['value'] = v
        except SystemExit as e:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            c = e.code
            if c is not None and not isinstance(c, int):
                print(c, file=sys.stderr)
                c = 1
            end.update(ok=False, exit=(c or 0) & 255)
        except BaseException as e:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            end.update(ok=False, error=type(e).__name__, message=str(e)[:1000])
            try:
                traceback.print_exception(type(e), e, own(e.__traceback__))
            except BaseException:
                pass
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        for s in (sys.stdout, sys.stderr):
            try:
                s.flush()
            except Exception:
                pass
        if os.getpid() != me:  # a child of fork that came to the cell's end
            os._exit(end.get('exit', 0 if end['ok'] else 1))
        try:
            say(**end)
        except ValueError:
            say(id=id, ok=False, error='ValueError')
        if 'exit' in end:
            os._exit(end['exit'])

driver(f)
