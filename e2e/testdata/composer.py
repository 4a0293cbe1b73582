"""Makes a Composer repository of the authors' archives of the distribution's PHP packages: composer.py FOLDER, with a folder NAME_VERSION for each."""
import json, pathlib, re, shutil, sys, zipfile

out = pathlib.Path(sys.argv[1])
packages = {}
for folder in sorted(f for f in out.iterdir() if f.is_dir()):
    manifest = folder / "composer.json"
    if manifest.exists():
        package = json.loads(manifest.read_text())
        version = re.sub(r"[+~].*", "", folder.name.split("_", 1)[1])  # what the distribution left out is no part of it
        archive = package["name"].replace("/", "-") + ".zip"
        with zipfile.ZipFile(out / archive, "w", zipfile.ZIP_DEFLATED) as z:
            for f in sorted(folder.rglob("*")):
                if f.is_file():
                    z.write(f, "package/" + str(f.relative_to(folder)))
        package |= {"version": version, "dist": {"type": "zip", "url": "ARCHIVES/" + archive}}
        packages[package["name"]] = {version: package}
    shutil.rmtree(folder)
(out / "packages.json").write_text(json.dumps({"packages": packages}))
