# Runs cells in IPython.
import base64

os.environ.setdefault('MPLBACKEND', 'module://matplotlib_inline.backend_inline')
os.environ.setdefault('IPYTHONDIR', os.path.join(os.environ.get('TMPDIR', '/tmp'), '.ipython-%d' % me))
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

current = [0]


def plain(data):
    return {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in data.items()}


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **kw):
        if os.getpid() == me:
            show(current[0], plain(data), metadata, False)

    def clear_output(self, wait=False):
        pass


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shown = cut(format_dict.get('text/plain') or '')
        show(current[0], plain(format_dict), md_dict, True)

    def finish_displayhook(self):
        pass


class Shell(InteractiveShell):
    display_pub_class = Publisher
    displayhook_class = Hook
    exiting = False

    def system(self, cmd):  # output goes where the cell's goes, and input has an end
        import subprocess
        flush()
        self.user_ns['_exit_code'] = subprocess.run(self.var_expand(cmd, depth=1), shell=True, stdin=subprocess.DEVNULL).returncode

    system_piped = system_raw = system

    def _showtraceback(self, etype, evalue, stb):
        print(self.InteractiveTB.stb2text(stb), file=sys.stderr)

    def ask_exit(self):
        self.exiting = True

    def enable_gui(self, gui=None):
        pass


config = Config()
config.HistoryManager.enabled = False
config.InteractiveShell.colors = 'NoColor'
shell = Shell.instance(config=config)


@breakable
def evaluate(id, source):
    say(id=id, began=True)
    return shell.run_cell(source, store_history=True)


@breakable
def message(e):
    return str(e)[:1000]


def run(id, source):
    current[0] = id
    shell.displayhook.shown, shell.exiting = None, False
    r = evaluate(id, source)
    e = r.error_before_exec or r.error_in_exec
    if isinstance(e, SystemExit):
        return {'ok': False, 'exit': exit_code(e)}
    if shell.exiting:
        return {'ok': False, 'exit': 0}
    if e is not None:
        return {'ok': False, 'error': type(e).__name__[:1000], 'message': message(e)}
    return {} if shell.displayhook.shown is None else {'value': cut(shell.displayhook.shown)}


serve(run)
