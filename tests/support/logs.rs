//! The logs of programs under test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::secrets;

/// Lines of each log that a failed test prints.
const TAIL: usize = 60;

/// The logs in a folder and in those below it.
pub fn of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = entries.flat_map(|path| match path.extension() {
        _ if path.is_dir() => of(&path),
        Some(extension) if extension == "log" => vec![path],
        _ => Vec::new(),
    });
    logs.collect()
}

/// Prints the last lines of a log.
pub fn print_tail(log: &Path) {
    let text = read(log);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default();
    println!("--- the last lines of {}\n{}", log.display(), tail.join("\n"));
}

/// No program of ours panicked, and nothing that was planted in a Secret is in its log. The text of the log.
pub fn assert_sound(log: &Path) -> String {
    let text = read(log);
    if let Some(at) = text.find("panicked at") {
        panic!("in {}: {}", log.display(), text[at..].lines().next().unwrap_or_default());
    }
    assert_silent(log)
}

/// Nothing that was planted in a Secret is in a log. Its text.
pub fn assert_silent(log: &Path) -> String {
    let text = read(log);
    assert!(!secrets::are_in(&text), "a planted secret is in {}", log.display());
    text
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned()
}
