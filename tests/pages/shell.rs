//! The terminal of a reader, and the release in front of him.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use crate::support::guard;

/// From the first command of a page to the first Machine with a Node.
const LIMIT: Duration = Duration::from_secs(180);
const MARK: &str = "----- ended with ";

/// A release on disk, that `hack/test-pages` made.
pub struct Release(PathBuf);

impl Release {
    pub fn on_disk() -> Self {
        let folder = env::var_os("MCM_RELEASE").map(PathBuf::from);
        Self(folder.unwrap_or_else(|| panic!("run these tests with hack/test-pages")))
    }

    /// A copy with hard links, in which a reader may make files.
    pub fn copy(&self, to: &Path) -> PathBuf {
        let copy = to.join("release");
        let copied = Command::new("cp").arg("-rl").args([&self.0, &copy]).status().unwrap();
        assert!(copied.success());
        copy
    }
}

/// The architecture as the files of a release name it.
pub fn architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A shell that runs commands one after the other, in the folder of the release.
pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    home: PathBuf,
    begun: Instant,
}

impl Shell {
    /// With kubectl, clusterctl and helm in PATH, and this kubeconfig if there is one.
    pub fn start(home: &Path, release: &Path, kubeconfig: Option<&Path>) -> Self {
        let programs = PathBuf::from(env::var_os("KUBEBUILDER_ASSETS").unwrap());
        let mut path = vec![programs.clone()];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
        let mut command = Command::new("bash");
        command.args([
            "-c",
            "exec 2>&1; set -o pipefail; while IFS= read -r file; do . \"$file\" </dev/null; code=$?; echo; echo \"$0$code\"; done",
        ]);
        command.arg(MARK).env_clear().env("PATH", env::join_paths(path).unwrap()).env("HOME", home).env("TMPDIR", home);
        command.env("CI", "true").env("KUBEBUILDER_ASSETS", programs);
        // clusterctl does not search for a newer version of itself.
        command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true").env("GOPROXY", "off");
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.current_dir(release).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.process_group(guard::process_group()).spawn().unwrap();
        let (lines, output) = channel();
        let reader = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in reader.split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take().unwrap();
        Self { child, input, output, home: home.to_owned(), begun: Instant::now() }
    }

    /// Runs a command to its end, which must be good; returns what it printed.
    pub fn run(&mut self, command: &str) -> String {
        self.run_until(command, |_| {})
    }

    /// The same; a closure gets each line when it is printed.
    pub fn run_until(&mut self, command: &str, mut see: impl FnMut(&str)) -> String {
        println!("$ {command}");
        let file = self.home.join("command");
        fs::write(&file, command).unwrap();
        writeln!(self.input, "{}", file.display()).unwrap();
        let mut printed = Vec::new();
        loop {
            let line =
                self.output.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{command} does not end: {printed:#?}"));
            if let Some(code) = line.strip_prefix(MARK) {
                let printed = printed.join("\n");
                // 4: something waits, and goes on without a user.
                let is_good = code == "0" || code == "4" && command.starts_with("mcm why");
                assert!(is_good, "{command} ended with {code}\n{printed}");
                return printed;
            }
            see(&line);
            println!("{line}");
            printed.push(line);
        }
    }

    /// Runs a command in another terminal, until [`Self::interrupt`].
    pub fn start_beside(&mut self, command: &str) {
        let log = self.home.join("beside.log");
        self.run(&format!("{command} >>{} 2>&1 &", log.display()));
    }

    /// Ends what runs in the background, as Ctrl-C does.
    pub fn interrupt(&mut self) {
        self.run("kill $(jobs -p) && wait");
    }

    /// The time since the beginning, to the first Machine with a Node.
    pub fn report(&self, page: &str, time: Duration) {
        println!("{page}: the first Machine had a Node after {:.1} s", time.as_secs_f64());
        assert!(time < LIMIT, "{page} took {time:?}");
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It fails only if the shell has ended. What runs in the background ends with this process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
