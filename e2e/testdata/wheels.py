"""Makes wheels of the distribution's Python packages: wheels.py FOLDER PACKAGE..."""
import base64, hashlib, importlib.metadata, pathlib, re, subprocess, sys, sysconfig, zipfile

site = pathlib.Path("/usr/lib/python3/dist-packages")
out = pathlib.Path(sys.argv[1])
packages = sys.argv[2:]
for package in packages:
    listed = [pathlib.Path(f) for f in subprocess.check_output(["dpkg", "-L", package], text=True).splitlines()]
    listed = [f for f in listed if f.is_relative_to(site) and f.is_file() and f.suffix != ".pyc"]
    [info] = {f.relative_to(site).parts[0] for f in listed if re.match(r".*\.(dist|egg)-info$", f.relative_to(site).parts[0])}
    dist = importlib.metadata.PathDistribution(site / info)
    stem = re.sub(r"[-_.]+", "_", dist.metadata["Name"]).lower() + "-" + dist.version
    tag = "py3-none-any"
    if any(f.suffix == ".so" for f in listed):
        python = "cp%d%d" % sys.version_info[:2]
        tag = "-".join([python, python, sysconfig.get_platform().replace("-", "_")])
    files = {str(f.relative_to(site)): f.read_bytes() for f in listed if not str(f.relative_to(site)).startswith(info)}
    # Its own metadata may leave out what the distribution makes a dependency of the package.
    needed = subprocess.check_output(["dpkg-query", "-W", "-f", "${Depends}", package], text=True)
    more = [p.removeprefix("python3-") for p in packages if re.search(rf"\b{p}\b(?!-)", needed)]
    first, rest = (dist.read_text("METADATA") or dist.read_text("PKG-INFO")).split("\n", 1)
    if "\nRequires-Dist:" not in rest:
        rest = "".join(f"Requires-Dist: {r}\n" for r in [*(dist.requires or []), *more]) + rest
    inner = stem + ".dist-info/"
    files[inner + "METADATA"] = (first + "\n" + rest).encode()
    files[inner + "WHEEL"] = f"Wheel-Version: 1.0\nGenerator: e2e\nRoot-Is-Purelib: {str(tag == 'py3-none-any').lower()}\nTag: {tag}\n".encode()
    if points := dist.read_text("entry_points.txt"):
        files[inner + "entry_points.txt"] = points.encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[inner + "RECORD"] = (record + inner + "RECORD,,\n").encode()
    with zipfile.ZipFile(out / f"{stem}-{tag}.whl", "w") as z:
        for name, content in files.items():
            z.writestr(name, content)
