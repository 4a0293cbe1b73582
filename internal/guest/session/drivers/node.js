// Runs cells. Descriptor 3 brings "ID BYTES\nCODE", 4 takes what is said of them, a JSON line each. 0 to 2 belong to the cells.
(() => {
  const { Buffer, Error, JSON, Number, Object, Set, String, SyntaxError, clearTimeout, process, setTimeout } = globalThis; // a cell may have a function process of its own
  const global = globalThis, rewrite = global['sandbox-agent.rewrite'];
  delete global['sandbox-agent.rewrite'];
  process.execArgv = process.execArgv.filter((a) => a !== '--expose-internals'); // what a cell forks has no use for it
  const fs = require('fs'), net = require('net'), repl = require('repl'), util = require('util'), vm = require('vm'), { PassThrough } = require('stream');
  const say = (o) => { const b = Buffer.from(JSON.stringify(o) + '\n'); for (let i = 0; i < b.length;) { try { i += fs.writeSync(4, b, i); } catch (e) { if (e.code !== 'EAGAIN') throw e; } } };
  const write = (fd, s) => { const b = Buffer.from(s); for (let i = 0; i < b.length;) { try { i += fs.writeSync(fd, b, i); } catch (e) { if (e.code !== 'EAGAIN') return; } } };
  const cut = (s) => s.length <= 1 << 18 ? s : s.slice(0, 1 << 18) + '…'; // the guest reads no line of more than 4 MiB
  const r = repl.start({ prompt: '', input: new PassThrough(), output: new PassThrough(), useGlobal: true, terminal: false });
  let current = null, wake = null;
  const queue = [];
  const end = (o) => { const id = current; if (id === null) return; current = null; clearTimeout(wake); say({ id, ...o }); next(); };
  // An error is shown with its cause and properties, as Node.js does, and without the driver's own frames; a { behind one stays.
  const frames = /\n *at (?!.*cell \d)[^\n]*(?:REPL\d*:\d+:\d+|node:(?:repl|vm|domain|events|internal)|\[eval\]|evalmachine)[^\n]*?( \{)?$/gm;
  const text = (e) => {
    try { return e instanceof Error ? util.inspect(e).replace(frames, '$1') : 'Uncaught ' + util.inspect(e); } catch { return 'Uncaught: it cannot be shown'; } // to show it is code of the cell's, too
  };
  const fail = (e) => {
    if (current === null) { write(2, 'uncaught: ' + text(e) + '\n'); return; }
    const broken = e && (e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED');
    write(2, (broken ? 'Interrupted' : text(e)) + '\n');
    end({ ok: false, error: broken ? 'Interrupted' : String(e && e.name || typeof e).slice(0, 1000), message: broken ? '' : String(e && e.message || e).slice(0, 1000) });
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  if (r._domain) { r._domain.removeAllListeners('error'); r._domain.on('error', fail); }
  process.on('SIGINT', () => { if (current !== null) { const e = new Error('Interrupted'); e.code = 'ERR_SCRIPT_EXECUTION_INTERRUPTED'; fail(e); } });
  const exit = process.reallyExit; // what is to be done at the exit has been done by then
  process.reallyExit = (code) => { if (current !== null) say({ id: current, ok: false, exit: code || 0 }); exit.call(process, code); };
  // What a cell has begun and not ended: timers, requests, children. What reads requests is not counted, and a server has no end.
  const pending = () => process.getActiveResourcesInfo().filter((x) => /^(Timeout|Immediate|TCPSocketWrap|TCPWrap|ProcessWrap|FSReqCallback|FSReqPromise|GetAddrInfoReqWrap|TLSWrap|Worker|MessagePort)$/.test(x)).length;
  function settle(id, o) {
    if (current !== id) return;
    if (pending() <= base) return end(o);
    wake = setTimeout(() => settle(id, o), 3);
    wake.unref();
  }
  let begin = null, base = 0; // what an interrupted cell has left is not waited for
  // What it calls is broken off by SIGINT, however deep it is.
  const script = new vm.Script('this["sandbox-agent.begin"]()');
  Object.defineProperty(global, 'sandbox-agent.begin', { value: () => begin(), enumerable: false });
  // The constants of earlier cells, by name. A cell that failed has made none.
  const consts = new Set();
  // What a cell declares can be assigned: a property that was read-only, or a constant before, is neither any more.
  function prepare(cell) {
    for (const name of cell.names) {
      const d = Object.getOwnPropertyDescriptor(global, name);
      if (d ? d.configurable && !d.set && !d.writable : cell.wrap) Object.defineProperty(global, name, { value: d && d.value, writable: true, enumerable: true, configurable: true });
    }
    for (const name of cell.kinds.keys()) consts.delete(name);
  }
  function run(id, code) {
    current = id;
    base = pending();
    let cell = null;
    try { cell = rewrite(code, consts); } catch { } // then it runs as it is
    begin = () => { say({ id, began: true }); if (cell) prepare(cell); r.eval(cell ? cell.code : code, r.context, 'cell ' + id, async (err, v) => {
      if (current !== id) return;
      try { if (!err && v && typeof v.then === 'function') v = await v; } catch (e) { err = e; }
      if (current !== id) return;
      if (err instanceof repl.Recoverable) err = err.err || new SyntaxError('the code ends too early');
      if (err) return fail(err);
      if (cell) for (const [name, kind] of cell.kinds) if (kind === 'const') consts.add(name);
      let value;
      try { value = v === undefined && !(cell && cell.shows) ? undefined : cut(util.inspect(v)); } catch (e) { return fail(e); }
      wake = setTimeout(() => settle(id, { ok: true, value }), 0); // a stream or a connection begins a tick later
      wake.unref();
    }); };
    try { script.runInThisContext({ breakOnSigint: true }); } catch (e) { fail(e); }
  }
  function next() { if (current === null && queue.length) run(...queue.shift()); }
  const req = new net.Socket({ fd: 3, readable: true, writable: false });
  let buf = Buffer.alloc(0), parts = [], have = 0, want = null;
  req.on('data', (d) => {
    parts.push(d); have += d.length;
    if (want !== null && have < want) return;
    buf = Buffer.concat(parts);
    for (;;) {
      const i = buf.indexOf(10);
      if (i < 0) { want = null; break; }
      const [id, n] = buf.subarray(0, i).toString().split(' ').map(Number);
      if (buf.length < i + 1 + n) { want = i + 1 + n; break; }
      queue.push([id, buf.subarray(i + 1, i + 1 + n).toString()]);
      buf = buf.subarray(i + 1 + n);
    }
    parts = [buf]; have = buf.length;
    next();
  });
  req.on('end', () => process.exit(0));
  say({ ready: true });
})();
