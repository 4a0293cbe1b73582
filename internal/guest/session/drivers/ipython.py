# Runs cells in IPython. f (descriptor 3) brings "ID BYTES\nCODE", descriptor 4 takes what is said of them, a JSON line each. 0 to 2 belong to the cells.
import io, json, os, signal, sys

def driver(f):
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    me = os.getpid()
    os.environ.setdefault('MPLBACKEND', 'module://matplotlib_inline.backend_inline')
    os.environ.setdefault('IPYTHONDIR', os.path.join(os.environ.get('TMPDIR', '/tmp'), '.ipython-%d' % me))
    sys.stdout = io.TextIOWrapper(os.fdopen(1, 'wb', closefd=False), 'utf-8', errors='backslashreplace')
    sys.stderr = io.TextIOWrapper(os.fdopen(2, 'wb', closefd=False), 'utf-8', errors='backslashreplace', write_through=True)
    import base64
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config
    current = [0]

    def say(**what):
        data = json.dumps(what, default=str).encode() + b'\n'
        while data:
            data = data[os.write(4, data):]

    def plain(data):
        return {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in data.items()}

    def show(data, metadata, result):
        sys.stdout.flush()
        sys.stderr.flush()
        say(id=current[0], display=plain(data), metadata=metadata or {}, result=result)

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, **kw):
            show(data, metadata, False)

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            self.shown = format_dict.get('text/plain')
            show(format_dict, md_dict, True)

        def finish_displayhook(self):
            pass

    class Shell(InteractiveShell):
        display_pub_class = Publisher
        displayhook_class = Hook
        colors = 'NoColor'

        def system(self, cmd):  # output goes where the cell's goes, and input has an end
            import subprocess
            sys.stdout.flush()
            c = subprocess.run(self.var_expand(cmd, depth=1), shell=True, stdin=subprocess.DEVNULL).returncode
            self.user_ns['_exit_code'] = c

        system_piped = system_raw = system

        def _showtraceback(self, etype, evalue, stb):
            print(self.InteractiveTB.stb2text(stb), file=sys.stderr)

        def enable_gui(self, gui=None):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = 'NoColor'
    shell = Shell.instance(config=config)
    exits = []
    shell.ask_exit = lambda: exits.append(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(ready=True)
    while True:
        head = f.readline()
        if not head:
            os._exit(0)
        id, n = (int(x) for x in head.split())
        current[0] = id
        code = f.read(n)
        end = {'id': id, 'ok': True}
        shell.displayhook.shown = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            r = shell.run_cell(code.decode(), store_history=True)
            e = r.error_before_exec or r.error_in_exec
            if isinstance(e, SystemExit):
                end.update(ok=False, exit=(e.code if isinstance(e.code, int) else 0 if e.code is None else 1) & 255)
            elif e is not None:
                end.update(ok=False, error=type(e).__name__, message=str(e)[:1000])
            elif shell.displayhook.shown is not None:
                end['value'] = shell.displayhook.shown
            if exits:
                end.update(ok=False, exit=0)
        except BaseException as e:
            end.update(ok=False, error=type(e).__name__, message=str(e)[:1000])
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        for s in (sys.stdout, sys.stderr):
            try:
                s.flush()
            except Exception:
                pass
        if os.getpid() != me:
            os._exit(end.get('exit', 0 if end['ok'] else 1))
        say(**end)
        if 'exit' in end:
            os._exit(end['exit'])

driver(f)
