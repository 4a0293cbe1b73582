// Rewrites a cell so that it can be run in a session like any other: what it declares is a property of the global object, which a later cell, or the same one
// again, may declare anew, also as something else; import declarations and await work in it. Lines stay where they are. The parser is Node's own, which its
// REPL uses; a cell that it cannot parse is not rewritten, and Node says why.
globalThis['sandbox-agent.rewrite'] = (() => {
  let acorn;
  try { acorn = require('internal/deps/acorn/acorn/dist/acorn'); } catch { return () => null; }
  const parse = (code) => acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'script', allowHashBang: true, allowAwaitOutsideFunction: true, allowImportExportEverywhere: true });
  // The names that a pattern binds or assigns.
  const names = (p) => {
    switch (p && p.type) {
      case 'Identifier': return [p.name];
      case 'ObjectPattern': return p.properties.flatMap((q) => names(q.value || q.argument));
      case 'ArrayPattern': return p.elements.flatMap(names);
      case 'AssignmentPattern': return names(p.left);
      case 'RestElement': return names(p.argument);
    }
    return [];
  };
  const declared = (n) => n.declarations.flatMap((d) => names(d.id));
  // What a cell has below its own statements: await outside of functions, var outside of functions, names bound in inner scopes, assignments to names.
  function scan(program) {
    const found = { awaits: false, vars: [], inner: new Set(), sets: [] };
    const bind = (list) => list.forEach((x) => found.inner.add(x));
    const go = (n, inside, head) => {
      const own = program.body.includes(n);
      let deeper = inside;
      switch (n.type) {
        case 'AwaitExpression': found.awaits ||= !inside; break;
        case 'ForOfStatement': found.awaits ||= !!n.await && !inside; break;
        case 'VariableDeclaration':
          if (!own && n.kind === 'var' && !inside) found.vars.push({ n, head });
          else if (!own) bind(declared(n));
          break;
        case 'FunctionDeclaration': case 'FunctionExpression': case 'ArrowFunctionExpression':
          if (!own && n.id) bind([n.id.name]);
          bind(n.params.flatMap(names));
          deeper = true;
          break;
        case 'ClassDeclaration': case 'ClassExpression': if (!own && n.id) bind([n.id.name]); break;
        case 'StaticBlock': deeper = true; break;
        case 'CatchClause': bind(names(n.param)); break;
        case 'AssignmentExpression': found.sets.push({ n, names: names(n.left) }); break;
        case 'UpdateExpression': found.sets.push({ n, names: names(n.argument) }); break;
      }
      for (const key of Object.keys(n)) {
        const at = /^For/.test(n.type) && (key === 'init' || key === 'left') ? key : '';
        for (const c of Array.isArray(n[key]) ? n[key] : [n[key]]) if (c && typeof c.type === 'string') go(c, deeper, at);
      }
    };
    go(program, false, '');
    return found;
  }
  const refuse = '(() => { throw new TypeError("Assignment to constant variable.") })(), ';
  // consts has the names of the constants of earlier cells. shows: the cell asks for a value, and is shown undefined, too. names are those that must be properties of the global object before the code runs.
  return (code, consts) => {
    let ast;
    code = code.replace(/^#!/, '//');
    if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) { // as in the REPL, it is an object if it can be one
      try { ast = parse(`(${code}\n)`); code = `(${code}\n)`; } catch { } // it is a block
    }
    try { ast ||= parse(code); } catch { return null; }
    const found = scan(ast), imports = ast.body.filter((n) => n.type === 'ImportDeclaration'), wrap = found.awaits || imports.length > 0;
    const edits = [], cuts = [], kinds = new Map();
    const edit = (start, end, text) => edits.push({ start, end, text });
    const cut = (n) => cuts.push({ start: n.start, end: n.end, text: ';' + code.slice(n.start, n.end).replace(/[^\n]/g, '') });
    const close = (n) => code[n.end - 1] === ';' ? edit(n.end - 1, n.end - 1, ')') : edit(n.end, n.end, ');');
    // A declaration becomes assignments, in a function.
    const assign = (n, head) => {
      edit(n.start, n.declarations[0].start, head ? '' : 'void (');
      for (const d of n.declarations) {
        if (head === 'left') break;
        if (!d.init && n.kind === 'var') { edit(d.start, d.end, '0'); continue; }
        edit(d.start, d.start, '(');
        edit(d.end, d.end, d.init ? ')' : ' = void 0)');
      }
      if (!head) close(n);
    };
    for (const n of ast.body) {
      switch (n.type) {
        case 'ImportDeclaration': n.specifiers.forEach((s) => kinds.set(s.local.name, 'const')); cut(n); break;
        case 'VariableDeclaration':
          declared(n).forEach((x) => kinds.set(x, n.kind));
          if (wrap) assign(n, '');
          else if (n.kind === 'let' || n.kind === 'const') {
            edit(n.start, n.start + n.kind.length, 'var'.padEnd(n.kind.length));
            n.declarations.forEach((d) => d.init || edit(d.end, d.end, ' = void 0'));
          }
          break;
        case 'ClassDeclaration':
          kinds.set(n.id.name, 'class');
          edit(n.start, n.start, `${wrap ? '' : 'var '}${n.id.name} = `);
          edit(n.end, n.end, ';');
          break;
        case 'FunctionDeclaration': kinds.set(n.id.name, 'function'); if (wrap) cut(n); break;
      }
    }
    for (const v of found.vars) {
      declared(v.n).forEach((x) => kinds.set(x, 'var'));
      if (wrap) assign(v.n, v.head);
    }
    const last = ast.body[ast.body.length - 1];
    if (wrap && last && last.type === 'ExpressionStatement') { edit(last.start, last.start, 'return ('); close(last); }
    for (const s of found.sets) {
      if (!s.names.some((x) => !found.inner.has(x) && (kinds.has(x) ? kinds.get(x) === 'const' : consts.has(x)))) continue;
      edit(s.n.start, s.n.start, '(' + refuse);
      edit(s.n.end, s.n.end, ')');
    }
    const render = (from, to, all) => {
      let out = '', at = from;
      for (const e of all.filter((e) => e.start >= from && e.end <= to).sort((a, b) => a.start - b.start)) {
        if (e.start < at) continue; // within what is cut
        out += code.slice(at, e.start) + e.text;
        at = e.end;
      }
      return out + code.slice(at, to);
    };
    const brought = imports.map((n) => {
      const options = n.attributes && n.attributes.length ? `, { with: { ${n.attributes.map((a) => code.slice(a.start, a.end)).join(', ')} } }` : '';
      let from = `await import(${n.source.raw}${options})`;
      const named = n.specifiers.filter((s) => s.type !== 'ImportNamespaceSpecifier').map((s) => [s.imported ? s.imported.name || s.imported.value : 'default', s.local.name]);
      const all = n.specifiers.find((s) => s.type === 'ImportNamespaceSpecifier');
      if (named.length) from = `((m, names) => { for (const n of names) if (!(n in m)) throw new SyntaxError(\`The requested module ${n.source.raw} does not provide an export named '\${n}'\`); return m; })(${from}, ${JSON.stringify(named.map((x) => x[0]))})`;
      if (all) from = `${all.local.name} = ${from}`;
      if (named.length) from = `{ ${named.map(([x, y]) => `${JSON.stringify(x)}: ${y}`).join(', ')} } = ${all ? `(${from})` : from}`;
      return `void (${from}); `;
    }).join('');
    const body = render(0, code.length, wrap ? [...cuts, ...edits] : edits) + '\n'; // a comment at the end must not go on
    return {
      code: wrap ? `(async () => { ${brought}${body}})()\n${ast.body.filter((n) => n.type === 'FunctionDeclaration').map((n) => render(n.start, n.end, edits)).join('\n')}` : body,
      names: [...kinds.keys()].filter((x) => kinds.get(x) !== 'function'), wrap, kinds, shows: !!last && last.type === 'ExpressionStatement' && /^(Identifier|MemberExpression)$/.test(last.expression.type),
    };
  };
})();
