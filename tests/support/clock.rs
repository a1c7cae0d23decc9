//! The wall clock of one program under test, moved by libfaketime.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Path of `libfaketime.so.1`; by default where Debian installs it.
const LIBRARY: &str = "LIBFAKETIME";

/// A wall clock that a test moves. The monotonic clock stays, as in reality.
pub struct ProcessClock {
    library: PathBuf,
    /// The offset from our clock.
    file: PathBuf,
}

impl ProcessClock {
    /// A clock that is ours until it is set. Panics without the library.
    pub fn at(file: PathBuf) -> Self {
        let library = library().unwrap_or_else(|| {
            panic!("there is no libfaketime.so.1: install libfaketime, or set {LIBRARY} to the path of the library")
        });
        let clock = Self { library, file };
        clock.set(0);
        clock
    }

    /// The environment of a program that has this clock. A program without shared libraries keeps ours.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Sets it so many seconds from our clock.
    pub fn set(&self, seconds: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

fn library() -> Option<PathBuf> {
    if let Some(given) = env::var_os(LIBRARY) {
        return Some(PathBuf::from(given));
    }
    let arch = env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{arch}-linux-gnu/faketime"),
        "/usr/lib/faketime".to_owned(),
        "/usr/lib64/faketime".to_owned(),
    ];
    folders.iter().map(|folder| Path::new(folder).join("libfaketime.so.1")).find(|path| path.exists())
}
