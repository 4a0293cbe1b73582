# Runs cells as Python's own prompt does.
import _ast, builtins, linecache, types  # ast and traceback are a megabyte of each session

module = sys.modules['__main__'] = types.ModuleType('__main__')  # where pickle looks for what cells define
names = module.__dict__
names['__builtins__'] = builtins
names.pop('__loader__', None)
AWAIT, COROUTINE = getattr(_ast, 'PyCF_ALLOW_TOP_LEVEL_AWAIT', 0), 0x80
loop = None


@breakable
def go(code):
    global loop
    r = eval(code, names)
    if not code.co_flags & COROUTINE:  # a coroutine that is a value is one
        return r
    import asyncio
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    task = loop.create_task(r)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except BaseException:
                pass
        raise


@breakable
def evaluate(id, name, source):
    say(id=id, began=True)
    tree = compile(source, name, 'exec', _ast.PyCF_ONLY_AST, True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    if tree.body:
        go(compile(tree, name, 'exec', AWAIT, True))
    if last is None:
        return None
    v = go(compile(_ast.Expression(last.value), name, 'eval', AWAIT, True))
    if v is None:
        return None
    builtins._ = v
    return cut(repr(v))


def clean(t):  # of the driver's own frames; an error that was met while another was handled, and so on, makes a chain of any length
    left = [t]
    while left:
        one = left.pop()
        one.stack[:] = [s for s in one.stack if s.filename != '<driver>']
        left += [o for o in (one.__cause__, one.__context__, *(getattr(one, 'exceptions', None) or ())) if o is not None]
    return t


@breakable
def report(e):
    import traceback
    sys.stderr.write(''.join(clean(traceback.TracebackException(type(e), e, e.__traceback__)).format()))
    return str(e)[:1000]


def run(id, source):
    name = '<cell %d>' % id
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    try:
        v = evaluate(id, name, source)
        return {} if v is None else {'value': v}
    except SystemExit as e:
        return {'ok': False, 'exit': exit_code(e)}
    except BaseException as e:
        end = {'ok': False, 'error': type(e).__name__[:1000]}
        try:
            end['message'] = report(e)
        except BaseException:
            pass  # its text is code of the cell's, too
        return end


serve(run)
