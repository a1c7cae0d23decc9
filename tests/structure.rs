//! The structure of the source, as rules: what decides is pure, floors are not skipped upwards, files form no circles, and a
//! kind is added in one folder and one line. And what the pages of conformance say of tests is true.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

#[path = "structure/conformance.rs"]
mod conformance;

/// Where decisions are made.
const PURE: [&str; 5] = ["plan", "drain", "safety", "controllers", "capi"];

/// What observes, carries out, registers and measures; everything else in those places is pure.
const OUTSIDE: [&str; 4] = ["observe.rs", "apply.rs", "register.rs", "metrics.rs"];
/// A folder of executors.
const OUTSIDE_FOLDER: &str = "apply";

/// What only executors may name, and why.
const FORBIDDEN: [(&str, &str); 15] = [
    ("Client", "a client"),
    ("Api", "a client"),
    ("reqwest", "a client"),
    ("tokio", "tasks"),
    ("futures", "tasks"),
    ("async", "tasks"),
    ("await", "tasks"),
    ("Mutex", "shared state"),
    ("RwLock", "shared state"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("rand", "chance"),
    ("runtime", "the outside world"),
    ("fs", "the outside world"),
    ("env", "the outside world"),
];

/// Where the tests of a file begin.
const TESTS: &str = "\n#[cfg(test)]\nmod tests {";

/// Floors from the ground up. A room may use those below it and those beside it.
const FLOORS: [&[&str]; 8] = [
    &["api"],
    &["plan"],
    &["drain", "safety", "driver", "simulated_cloud", "runtime"],
    &["controllers"],
    &["capi"],
    &["process"],
    &["cli"],
    &["main"],
];

#[test]
fn what_decides_knows_nothing_of_the_outside_world() {
    let mut seen = 0;
    let mut violations = Vec::new();
    for file in sources().iter().filter(|file| is_pure(file)) {
        seen += 1;
        for (number, line) in code_of(&read(file)) {
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
fn no_room_uses_one_above_it() {
    let mut violations = Vec::new();
    for (file, imports) in imports() {
        let Some(own) = floor_of(&file) else { continue };
        for import in imports {
            if floor_of(&import).is_some_and(|floor| floor > own) {
                violations.push(format!("{} uses {}", file.display(), import.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn files_form_no_circles() {
    let circles = circles(&imports());
    let names =
        |circle: &Vec<PathBuf>| circle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" -> ");
    assert!(circles.is_empty(), "{}", circles.iter().map(names).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_kind_is_known_to_one_line_outside_its_folder() {
    for (room, list) in [("controllers", "mod.rs"), ("capi/provider", "register.rs"), ("capi/stand_in", "register.rs")]
    {
        each_kind_is_listed(&source().join(room), list);
    }
}

fn each_kind_is_listed(room: &Path, list: &str) {
    let kinds = fs::read_to_string(room.join(list)).unwrap();
    let listed = |name: &str| kinds.contains(&format!("{name}::KIND"));
    for folder in fs::read_dir(room).unwrap().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !folder.path().join("register.rs").exists() {
            continue;
        }
        assert!(listed(&name), "{name} registers itself and is not listed");
        for part in ["mod.rs", "observe.rs", "plan.rs", "apply.rs"] {
            let is_there =
                folder.path().join(part).exists() || folder.path().join(part.trim_end_matches(".rs")).exists();
            assert!(is_there, "{name} has no {part}");
        }
    }
}

/// Words in texts of a status by which Gardener tells errors of a user from others. Texts of clouds and API servers may have
/// them, ours must not.
const CLASSIFIED: [&str; 5] = ["notfound", "conflict", "denied", "invalid value", "resourceexhausted"];

#[test]
fn texts_of_controllers_have_no_words_that_others_classify_as_errors_of_a_user() {
    let mut violations = Vec::new();
    let is_told = |file: &&PathBuf| is_pure(file) && !file.ends_with("lint.rs");
    for file in sources().iter().filter(is_told) {
        let text = read(file);
        let code = &text[..text.find(TESTS).unwrap_or(text.len())];
        for (number, line) in (1..).zip(code.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let told = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
            for word in CLASSIFIED.iter().filter(|word| told.contains(*word)) {
                violations.push(format!("{}:{number}: {word}: {}", file.display(), line.trim()));
            }
        }
    }
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

#[test]
fn uses_are_read_with_their_braces_and_circles_are_found() {
    let text = "use std::fmt;\nuse crate::{api::{labels, machine::Machine}, plan::Plan};\npub use super::{a::B, c};\n";
    let paths: Vec<String> = uses(text).into_iter().map(|(path, is_public)| format!("{path} {is_public}")).collect();
    let expected = [
        "crate::api::labels false",
        "crate::api::machine::Machine false",
        "crate::plan::Plan false",
        "super::a::B true",
        "super::c true",
    ];
    assert_eq!(paths, expected);
    let edge = |from: &str, to: &[&str]| (PathBuf::from(from), to.iter().map(PathBuf::from).collect());
    let graph: BTreeMap<PathBuf, BTreeSet<PathBuf>> =
        [edge("a", &["b"]), edge("b", &["c"]), edge("c", &["b"]), edge("d", &["a"])].into();
    assert_eq!(circles(&graph), [vec![PathBuf::from("b"), PathBuf::from("c")]]);
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(file: &Path) -> String {
    fs::read_to_string(source().join(file)).unwrap()
}

/// Every source file but tests, relative to `src`.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![source()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if ["tests", "testing", "tests.rs"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path.strip_prefix(source()).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

fn is_pure(file: &Path) -> bool {
    let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_outside = parts.last().is_some_and(|name| OUTSIDE.contains(&name.as_str()))
        || parts.iter().any(|part| part == OUTSIDE_FOLDER);
    PURE.contains(&parts[0].as_str()) && !is_outside && file != Path::new("controllers/mod.rs")
}

fn floor_of(file: &Path) -> Option<usize> {
    let room = file.iter().next()?.to_string_lossy().trim_end_matches(".rs").to_owned();
    FLOORS.iter().position(|floor| floor.contains(&room.as_str()))
}

/// Which file uses which. A use of something that a folder passes on leads to the file that defines it.
fn imports() -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let files: BTreeSet<PathBuf> = sources().into_iter().collect();
    let mut imports = BTreeMap::new();
    for file in &files {
        let text: String = code_of(&read(file)).map(|(_, line)| line + "\n").collect();
        let mut used = BTreeSet::new();
        // What a folder only passes on is no use of its own.
        for (path, _) in uses(&text).into_iter().filter(|(_, is_public)| !is_public) {
            used.extend(resolve(&absolute(&path, file), &files, 0));
        }
        used.remove(file);
        imports.insert(file.clone(), used);
    }
    imports
}

/// The paths of all uses that begin in this crate, and whether others may use them from here.
fn uses(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let is_start = rest[..at].ends_with('\n') || at == 0 || rest[..at].ends_with(' ');
        let line = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
        let (after, end) = (&rest[at + 4..], rest[at..].find(';').map_or(rest.len(), |end| at + end));
        if is_start && (line.is_empty() || line.starts_with("pub")) {
            let tree: String = after[..end.saturating_sub(at + 4)].split_whitespace().collect();
            let paths = expand(&tree);
            let ours =
                paths.into_iter().filter(|path| ["crate", "super", "self"].iter().any(|head| path.starts_with(head)));
            found.extend(ours.map(|path| (path, line.starts_with("pub"))));
        }
        rest = &rest[(at + 4).max(if is_start { end } else { 0 })..];
    }
    found
}

fn expand(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.split("as").next().unwrap_or(tree).to_owned()] };
    let (head, inner) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(part)).map(|part| format!("{head}{part}")).collect()
}

/// The module path of a use, from the root.
fn absolute(path: &str, file: &Path) -> Vec<String> {
    let mut module = module_of(file);
    let mut parts = path.split("::").map(str::to_owned).peekable();
    match parts.peek().map(String::as_str) {
        Some("crate") => {
            parts.next();
            module.clear();
        }
        Some("self") => drop(parts.next()),
        _ => {
            while parts.peek().is_some_and(|part| part == "super") {
                parts.next();
                module.pop();
            }
        }
    }
    module.extend(parts);
    module
}

fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The file that defines what a path names.
fn resolve(path: &[String], files: &BTreeSet<PathBuf>, depth: usize) -> Option<PathBuf> {
    for length in (0..=path.len()).rev() {
        let folder: PathBuf = path[..length].iter().collect();
        let candidates = [folder.join("mod.rs"), folder.with_extension("rs")];
        let Some(file) = candidates.into_iter().find(|file| files.contains(file)) else { continue };
        let Some(name) = path.get(length) else { return Some(file) };
        let text: String = code_of(&read(&file)).map(|(_, line)| line + "\n").collect();
        let passed_on =
            uses(&text).into_iter().find(|(use_, is_public)| *is_public && use_.rsplit("::").next() == Some(name));
        return match passed_on.filter(|_| depth < 8) {
            Some((use_, _)) => resolve(&absolute(&use_, &file), files, depth + 1),
            None => Some(file),
        };
    }
    None
}

/// Files that use each other, directly or by way of others.
fn circles(graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Vec<PathBuf>> {
    let reach = |from: &PathBuf| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&PathBuf> = graph.get(from).into_iter().flatten().collect();
        while let Some(file) = next.pop() {
            if seen.insert(file.clone()) {
                next.extend(graph.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<PathBuf>> = graph.keys().map(|file| (file, reach(file))).collect();
    let mut found: BTreeSet<Vec<PathBuf>> = BTreeSet::new();
    for (file, all) in &reached {
        if all.contains(*file) {
            let circle = all.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*file)));
            found.insert(circle.cloned().collect());
        }
    }
    found.into_iter().collect()
}

/// Lines of code with their numbers: without comments, without the content of texts, and only up to the tests, which
/// stand at the end.
fn code_of(text: &str) -> impl Iterator<Item = (usize, String)> {
    let until = text.find(TESTS).unwrap_or(text.len());
    text[..until].lines().enumerate().map(|(index, line)| {
        let pieces = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        (index + 1, pieces.split("//").next().unwrap_or_default().to_owned())
    })
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}
