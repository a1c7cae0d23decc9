//! Decisions are functions of what they are given: what plans has no client, no clock, no chance and no tasks.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where decisions are made.
const PLACES: [&str; 3] = ["src/controllers", "src/drain", "src/safety"];

/// Files in those places that are shells: they observe, carry out, and hold what passes share.
const SHELLS: [&str; 8] =
    ["reconcile.rs", "lanes.rs", "calls.rs", "measure.rs", "context.rs", "controller.rs", "manager.rs", "wiring.rs"];

/// What only shells may name, and why.
const FORBIDDEN: [(&str, &str); 14] = [
    ("Client", "a client"),
    ("Api", "a client"),
    ("reqwest", "a client"),
    ("tokio", "tasks"),
    ("futures", "tasks"),
    ("async", "tasks"),
    ("await", "tasks"),
    ("Mutex", "shared state"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("rand", "chance"),
    ("runtime", "the outside world"),
    ("fs", "the outside world"),
    ("env", "the outside world"),
];

#[test]
fn what_decides_knows_nothing_of_the_outside_world() {
    let mut seen = 0;
    let mut violations = Vec::new();
    for file in PLACES.iter().flat_map(|place| files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(place))) {
        seen += 1;
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in code_of(&text) {
            let says_now = line.contains("Timestamp::now").then_some(("Timestamp::now", "a clock"));
            let words = FORBIDDEN.into_iter().filter(|(word, _)| words_of(&line).any(|other| other == *word));
            for (word, what) in words.chain(says_now) {
                violations.push(format!("{}:{number}: {word} is {what}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(seen > 40, "only {seen} files were found");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_scan_finds_what_it_is_for() {
    let text = "\
//! tokio in a comment
use kube::{Client, ResourceExt}; // Api in a comment
const TEXT: &str = \"the Api of tokio\";
fn plan() -> Timestamp { Timestamp::now() }
mod runtime_of_nothing;
#[cfg(test)]
mod tests {
    use tokio::time::Instant;
}
";
    let found: Vec<String> = code_of(text)
        .flat_map(|(_, line)| words_of(&line).map(str::to_owned).collect::<Vec<_>>())
        .filter(|word| FORBIDDEN.iter().any(|(forbidden, _)| word == forbidden))
        .collect();
    assert_eq!(found, ["Client"]);
    assert!(code_of(text).any(|(_, line)| line.contains("Timestamp::now")));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_test = ["tests", "testing", "tests.rs"].contains(&name.as_str());
        if is_test || SHELLS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Lines of code with their numbers: without comments, without the content of texts, and only up to the tests, which
/// stand at the end.
fn code_of(text: &str) -> impl Iterator<Item = (usize, String)> {
    let until = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..until].lines().enumerate().map(|(index, line)| {
        let pieces = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        (index + 1, pieces.split("//").next().unwrap_or_default().to_owned())
    })
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}
