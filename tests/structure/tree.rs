//! Source files as text, which file uses which, and the circles among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Begin of the tests in a file.
const TESTS: &str = "\n#[cfg(test)]\nmod tests {";
/// Files and folders of tests.
const TEST_NAMES: [&str; 3] = ["tests", "testing", "tests.rs"];
/// Longest chain of re-exports that is followed.
const DEPTH: usize = 8;

/// The imports of each file.
pub type Graph = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Source files without tests, by their path below `src`.
pub struct Tree(BTreeMap<PathBuf, Source>);

struct Source {
    text: String,
    paths: Vec<Mention>,
}

/// A path that a file names.
struct Mention {
    /// Segments as written, such as `super`, `plan`, `Plan`.
    path: Vec<String>,
    /// Whether it is passed on, by `pub use`.
    is_passed_on: bool,
    /// Whether the file uses it.
    is_used: bool,
}

impl Tree {
    /// The files of a folder.
    pub fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                if TEST_NAMES.contains(&name.as_str()) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".rs") {
                    files.push((path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Self::new(files)
    }

    /// Files given as path and text.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect())
    }

    fn new(files: Vec<(PathBuf, String)>) -> Self {
        let source = |text: String| Source { paths: mentions(&text), text };
        Self(files.into_iter().map(|(path, text)| (path, source(text))).collect())
    }

    /// All files with their text.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.0.iter().map(|(path, source)| (path.as_path(), source.text.as_str()))
    }

    /// The imports of each file. An import of a re-exported item leads to the file that defines it; a re-export is not an
    /// import.
    pub fn imports(&self) -> Graph {
        let used = |file: &PathBuf, source: &Source| {
            let paths = source.paths.iter().filter(|mention| mention.is_used);
            let targets = paths.filter_map(|mention| self.resolve(&self.absolute(&mention.path, file)?, 0));
            targets.filter(|target| target != file).collect()
        };
        self.0.iter().map(|(file, source)| (file.clone(), used(file, source))).collect()
    }

    /// The module path from the root; `None` for a path into another crate.
    fn absolute(&self, path: &[String], file: &Path) -> Option<Vec<String>> {
        let mut module = module_of(file);
        let ups = path.iter().take_while(|part| *part == "super").count();
        let rest = match path.first()?.as_str() {
            "crate" => {
                module.clear();
                &path[1..]
            }
            "self" => &path[1..],
            "super" => {
                module.truncate(module.len().saturating_sub(ups));
                &path[ups..]
            }
            child => {
                module.push(child.to_owned());
                self.file_of(&module)?;
                module.pop();
                path
            }
        };
        module.extend(rest.iter().cloned());
        Some(module)
    }

    /// The file that defines what a path names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<PathBuf> {
        let (length, file) =
            (0..=path.len()).rev().find_map(|length| Some((length, self.file_of(&path[..length])?)))?;
        let Some(name) = path.get(length) else { return Some(file) };
        let source = self.0.get(&file)?;
        let passed_on = source.paths.iter().find(|mention| mention.is_passed_on && mention.path.last() == Some(name));
        match passed_on.filter(|_| depth < DEPTH).and_then(|mention| self.absolute(&mention.path, &file)) {
            Some(further) => self.resolve(&further, depth + 1),
            None => Some(file),
        }
    }

    fn file_of(&self, module: &[String]) -> Option<PathBuf> {
        let folder: PathBuf = module.iter().collect();
        let mut candidates = match module {
            [] => vec![PathBuf::from("lib.rs")],
            _ => vec![folder.join("mod.rs"), folder.with_extension("rs")],
        };
        candidates.retain(|file| self.0.contains_key(file));
        candidates.pop()
    }
}

/// The module of a file.
pub fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// All paths with at least two segments, of uses and of code.
fn mentions(text: &str) -> Vec<Mention> {
    let code = without_visibility(code_of(text).map(|(_, line)| line + "\n").collect());
    let mut found = Vec::new();
    let mut other = String::new();
    let mut rest = code.as_str();
    while let Some((before, is_public, after)) = next_use(rest) {
        let (tree, next) = after.split_once(';').unwrap_or((after, ""));
        let paths = expand(&tree.split_whitespace().collect::<Vec<_>>().join(" "));
        found.extend(paths.into_iter().map(|path| Mention { path, is_passed_on: is_public, is_used: !is_public }));
        other.push_str(before);
        other.push('\n');
        rest = next;
    }
    other.push_str(rest);
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let inline = other.split(|c: char| !is_part(c)).filter(|word| word.contains("::") && !word.starts_with("::"));
    found.extend(inline.map(|word| Mention { path: segments(word), is_passed_on: false, is_used: true }));
    let words: BTreeSet<&str> = words_of(&other).collect();
    for mention in &mut found {
        mention.is_used |= mention.path.last().is_some_and(|name| is_type(name) && words.contains(name.as_str()));
    }
    found
}

/// `pub(in path)` as `pub`: who may use an item is no use.
fn without_visibility(mut code: String) -> String {
    while let Some(at) = code.find("pub(in ") {
        let end = code[at..].find(')').map_or(code.len(), |end| at + end + 1);
        code.replace_range(at + 3..end, "");
    }
    code
}

/// The text before the next `use`, whether it is public, and the text after the keyword.
fn next_use(text: &str) -> Option<(&str, bool, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("use ")?;
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let head = text[line..at].trim();
        if head.is_empty() || head.starts_with("pub") && (head == "pub" || head.ends_with(')')) {
            return Some((&text[..line], !head.is_empty(), &text[at + 4..]));
        }
        from = at + 4;
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The paths of a tree with braces, by the name of their definition.
pub fn expand(tree: &str) -> Vec<Vec<String>> {
    let Some(open) = tree.find('{') else {
        let mut path = segments(tree.split(" as ").next().unwrap_or(tree));
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        return vec![path];
    };
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
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{head}{}", part.trim()))).collect()
}

/// Files that use each other, directly or through others.
pub fn circles(graph: &Graph) -> Vec<Vec<PathBuf>> {
    let reach = |from: &PathBuf| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&PathBuf> = graph.get(from).into_iter().flatten().collect();
        while let Some(file) = next.pop() {
            if seen.insert(file) {
                next.extend(graph.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = graph.keys().map(|file| (file, reach(file))).collect();
    let mut found: BTreeSet<Vec<PathBuf>> = BTreeSet::new();
    for (file, all) in &reached {
        if all.contains(*file) {
            let circle = all.iter().filter(|other| reached.get(**other).is_some_and(|back| back.contains(*file)));
            found.insert(circle.map(|other| (*other).clone()).collect());
        }
    }
    found.into_iter().collect()
}

/// Lines of code with their numbers: without comments, without the content of texts, and without the tests at the end.
pub fn code_of(text: &str) -> impl Iterator<Item = (usize, String)> {
    product_of(text).lines().enumerate().map(|(index, line)| {
        let pieces = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        (index + 1, pieces.split("//").next().unwrap_or_default().to_owned())
    })
}

/// The text without the tests at the end.
pub fn product_of(text: &str) -> &str {
    &text[..text.find(TESTS).unwrap_or(text.len())]
}

/// Functions and modules have names that occur in other roles.
fn is_type(name: &str) -> bool {
    name.starts_with(|c: char| c.is_uppercase())
}

/// Identifiers and keywords.
pub fn words_of(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
