//! Decisions are made without client, clock, randomness or I/O. What they import shows it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms in which decisions are made.
const PURE: [&str; 7] = [
    "src/controllers/machine",
    "src/controllers/machine_class",
    "src/controllers/machine_deployment",
    "src/controllers/machine_set",
    "src/controllers/node",
    "src/drain",
    "src/safety",
];

/// Files in these rooms that observe and apply.
const SHELL: [&str; 3] = ["reconcile.rs", "calls.rs", "measure.rs"];

const FORBIDDEN: [&str; 11] = [
    "kube::Client",
    "kube::Api",
    "Api::",
    "tokio",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "rand::",
    "crate::runtime",
    "reqwest",
    "std::fs",
];

#[test]
fn decisions_know_neither_client_nor_clock_nor_chance() {
    let mut files = Vec::new();
    PURE.iter().for_each(|room| collect(Path::new(room), &mut files));
    assert!(files.len() > 40, "the rooms were moved: {} files found", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in FORBIDDEN.iter().filter(|word| line.contains(*word)) {
                found.push(format!("{}:{}: {word}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "move this to the shell, and hand its outcome to the plan:\n{}", found.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if name != "tests" {
                collect(&path, files);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && !SHELL.contains(&name.as_str()) {
            files.push(path);
        }
    }
}
