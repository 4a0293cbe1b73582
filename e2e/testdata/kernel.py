# Times a kernel of Jupyter as its own client has it: prints the milliseconds of its start, and of each call.
import json, logging, sys, time
from jupyter_client import KernelManager

logging.disable()
start = time.perf_counter()
manager = KernelManager(transport="ipc", kernel_name="python3")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive("x = 1", timeout=60)
ready = (time.perf_counter() - start) * 1e3
calls = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    client.execute_interactive("x + 1", timeout=60, output_hook=lambda m: None)
    calls.append((time.perf_counter() - start) * 1e3)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps({"ready": ready, "calls": calls}))
