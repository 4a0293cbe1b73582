# Runs cells in a kernel of Jupyter, which it talks to over sockets with a path.
import queue, re, shutil, tempfile

from jupyter_client.manager import KernelManager

place = tempfile.mkdtemp(prefix='kernel-')
km = KernelManager(kernel_name=KERNEL, transport='ipc', ip=os.path.join(place, 'k'), connection_file=os.path.join(place, 'connection.json'))
km.start_kernel(stdin=0, stdout=1, stderr=2)
kc = km.blocking_client()
kc.start_channels()
kc.wait_for_ready(timeout=60)
colors = re.compile(r'\x1b\[[0-9;]*m')
asked = [False]


def put(stream, text):
    stream.write(text)
    stream.flush()


def reply(message):  # to a cell that is over
    for _ in range(10):
        try:
            m = kc.get_shell_msg(timeout=0.1)
        except queue.Empty:
            if not km.is_alive():
                break
            continue
        if m['parent_header'].get('msg_id') == message:
            return m['content']
    return {}


def interrupt(number, frame):  # the kernel is no process of this one's group
    asked[0] = True


def run(id, source):
    end = {'ok': True}
    asked[0] = False
    say(id=id, began=True)
    message = kc.execute(source, allow_stdin=False, stop_on_error=False)
    while True:
        if asked[0]:
            asked[0] = False
            km.interrupt_kernel()
        try:
            m = kc.get_iopub_msg(timeout=0.1)
        except queue.Empty:
            if not km.is_alive():
                break
            continue
        if m['parent_header'].get('msg_id') != message:
            continue
        kind, c = m['msg_type'], m['content']
        if kind == 'status' and c['execution_state'] == 'idle':
            break
        if kind == 'stream':
            put(sys.stderr if c['name'] == 'stderr' else sys.stdout, c['text'])
        elif kind in ('display_data', 'execute_result'):
            show(id, c['data'], c.get('metadata'), kind == 'execute_result')
            if kind == 'execute_result':
                end['value'] = cut(c['data'].get('text/plain', ''))
        elif kind == 'error':
            put(sys.stderr, colors.sub('', '\n'.join(c['traceback'])) + '\n')
            end.update(ok=False, error=c['ename'][:1000], message=c['evalue'][:1000])
    for p in reply(message).get('payload') or ():
        if p.get('source') == 'page':
            put(sys.stdout, colors.sub('', p.get('data', {}).get('text/plain', '')) + '\n')
        elif p.get('source') == 'ask_exit':  # the kernel leaves it to who has it
            km.shutdown_kernel(now=True)
            end['exit'] = 0
    if not km.is_alive():
        shutil.rmtree(place, ignore_errors=True)
        end.update(ok=False, exit=end.get('exit', 1))
    return end


serve(run)
