# Makes gems of the distribution's Ruby packages, and the index of rubygems.org for them: gems.rb FOLDER
require "digest"
require "fileutils"
require "rubygems/package"
require "tmpdir"

out = ARGV[0]
FileUtils.mkdir_p(["#{out}/gems", "#{out}/info"])
known = Hash.new { |all, name| all[name] = {} }
Dir["/usr/{share,lib/*}/rubygems-integration/*/specifications/*.gemspec", "/usr/lib/ruby/gems/*/specifications/*.gemspec"].sort.each do |path|
  spec = Gem::Specification.load(path)
  Dir.mktmpdir do |dir|
    base = "#{File.dirname(path, 2)}/gems/#{spec.full_name}"
    if Dir.exist?(base)
      system("cp", "-rL", "#{base}/.", dir, err: File::NULL) # links that lead nowhere stay behind
      Dir["#{File.dirname(path, 2)}/extensions/*/*/#{spec.full_name}"].each { |built| system("cp", "-rL", "#{built}/.", "#{dir}/lib") }
    else
      owner = `dpkg -S #{path}`[/^[^:]+/]
      `dpkg -L #{owner}`.split("\n").select { |f| File.file?(f) }.each do |f|
        to = f[%r{/vendor_ruby/(?:\d[\d.]*/)?(.*)}, 1] and to = "lib/#{to}"
        to ||= "#{spec.bindir}/#{File.basename(f)}" if f.start_with?("/usr/bin/") && spec.executables.include?(File.basename(f))
        to ||= f.sub("/usr/share/#{owner}/", "data/") if f.start_with?("/usr/share/#{owner}/")
        next unless to
        FileUtils.mkdir_p("#{dir}/#{File.dirname(to)}")
        FileUtils.cp(f, "#{dir}/#{to}")
      end
      spec.require_paths = ["lib"]
    end
    Dir.chdir(dir) do
      spec.executables = Dir.exist?(spec.bindir) ? Dir.children(spec.bindir).select { |f| File.file?("#{spec.bindir}/#{f}") } : []
      spec.files = Dir.glob("**/*", File::FNM_DOTMATCH).select { |f| File.file?(f) }
      spec.extensions, spec.extra_rdoc_files, spec.test_files = [], [], []
      file = Gem::Package.build(spec, true)
      needs = spec.runtime_dependencies.map { |d| "#{d.name}:#{d.requirement.to_s.split(', ').join('&')}" }.join(",")
      known[spec.name][spec.version] = "#{spec.version} #{needs}|checksum:#{Digest::SHA256.file(file).hexdigest}\n"
      FileUtils.mv(file, "#{out}/gems/")
    end
  end
end
versions = known.sort.map do |name, lines|
  info = "---\n" + lines.sort.map(&:last).join
  File.write("#{out}/info/#{name}", info)
  "#{name} #{lines.keys.sort.join(",")} #{Digest::MD5.hexdigest(info)}\n"
end
File.write("#{out}/versions", "created_at: 2020-01-01T00:00:00Z\n---\n" + versions.join)
