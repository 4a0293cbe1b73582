"""A scripted stand-in for a coding agent: no account, no key, no model.

It works the way an agent does: it reads the prompt, runs the tests, reads the
code, changes it, runs the tests again and commits. What it prints are the JSON events that the command harness understands.
"""

import json
import os
import pathlib
import subprocess
import sys


def event(type, **fields):
    print(json.dumps({"type": type, **fields}), flush=True)


def end_of(text, most=500):
    """The end of a text, where a tool says what came of it."""
    return text if len(text) <= most else "…" + text[1 - most:]


def tool(id, name, text, argv):
    event("agent.tool", id=id, name=name, text=text)
    done = subprocess.run(argv, capture_output=True, text=True)
    event("agent.tool_result", id=id, status="ok" if done.returncode == 0 else "error",
          text=end_of(done.stdout + done.stderr))
    return done.returncode


def main():
    prompt = pathlib.Path(os.environ["SANDBOX_AGENT_PROMPT_FILE"]).read_text()
    event("agent.text", text="The task: " + prompt.strip())
    tests = [sys.executable, "-m", "unittest", "-q"]
    if tool("1", "Bash", "python3 -m unittest -q", tests) == 0:
        event("agent.text", text="The tests pass already.")
        return 0
    event("agent.text", text="INCR returns the new value, so nothing has to be subtracted.")
    path = pathlib.Path("visits.py")
    code = path.read_text()
    event("agent.tool", id="2", name="Edit", text="visits.py")
    path.write_text(code.replace('redis.incr("visits:" + page) - 1', 'redis.incr("visits:" + page)'))
    event("agent.tool_result", id="2", status="ok", text="1 line changed")
    if tool("3", "Bash", "python3 -m unittest -q", tests) != 0:
        event("agent.error", text="The tests still fail.")
        return 1
    tool("4", "Bash", "git commit", ["git", "commit", "-q", "-a", "-m", "Count the visit that is being recorded"])
    event("agent.usage", usage={"cost_usd": 0.0, "input_tokens": 0, "output_tokens": 0})
    event("agent.text", text="The counter now includes the visit that is being recorded; both tests pass.")
    return 0


sys.exit(main())
