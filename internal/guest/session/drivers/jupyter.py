# Runs cells in a kernel of Jupyter, which it talks to over sockets with a path. f (descriptor 3) brings "ID BYTES\nCODE", descriptor 4 takes what is said of
# them, a JSON line each.
import json, os, queue, re, shutil, signal, sys, tempfile

def driver(f):
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    from jupyter_client.manager import KernelManager

    def say(**what):
        data = json.dumps(what, default=str).encode() + b'\n'
        while data:
            data = data[os.write(4, data):]

    def put(fd, text):
        data = text.encode(errors='backslashreplace')
        while data:
            data = data[os.write(fd, data):]

    folder = tempfile.mkdtemp(prefix='kernel-')
    km = KernelManager(kernel_name=KERNEL, transport='ipc', ip=os.path.join(folder, 'k'), connection_file=os.path.join(folder, 'connection.json'))
    km.start_kernel(stdin=0, stdout=1, stderr=2)
    kc = km.blocking_client()
    kc.start_channels()
    kc.wait_for_ready(timeout=60)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(ready=True)
    plain = re.compile(r'\x1b\[[0-9;]*m')

    def gone(code):
        kc.stop_channels()
        try:
            km.shutdown_kernel(now=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(code)

    while True:
        head = f.readline()
        if not head:
            gone(0)
        id, n = (int(x) for x in head.split())
        code = f.read(n).decode(errors='replace')
        end = {'id': id, 'ok': True}
        message = kc.execute(code, allow_stdin=False, stop_on_error=False)
        signal.signal(signal.SIGINT, lambda *a: km.interrupt_kernel())
        while True:
            try:
                m = kc.get_iopub_msg(timeout=1)
            except queue.Empty:
                if not km.is_alive():
                    end.update(ok=False, exit=1)
                    break
                continue
            if m['parent_header'].get('msg_id') != message:
                continue
            kind, c = m['msg_type'], m['content']
            if kind == 'status' and c['execution_state'] == 'idle':
                break
            if kind == 'stream':
                put(2 if c['name'] == 'stderr' else 1, c['text'])
            elif kind in ('display_data', 'execute_result'):
                say(id=id, display=c['data'], metadata=c.get('metadata', {}), result=kind == 'execute_result')
                if kind == 'execute_result':
                    end['value'] = c['data'].get('text/plain', '')
            elif kind == 'error':
                put(2, plain.sub('', '\n'.join(c['traceback'])) + '\n')
                end.update(ok=False, error=c['ename'], message=c['evalue'][:1000])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if 'exit' not in end and not km.is_alive():
            end.update(ok=False, exit=0)
        say(**end)
        if 'exit' in end:
            gone(end['exit'])

driver(f)
