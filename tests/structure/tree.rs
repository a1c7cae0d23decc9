//! Source files of all crates as text, which file uses which, and the circles among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Begin of the tests in a file.
const TESTS: &str = "\n#[cfg(test)]\nmod tests {";
/// Files and folders of tests.
const TEST_NAMES: [&str; 4] = ["examples", "testing", "tests", "tests.rs"];
/// Longest chain of re-exports that is followed.
const DEPTH: usize = 8;

/// The imports of each file.
pub type Graph = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The folder of the product, and the name of its crate.
pub const PRODUCT: &str = "mcm";
/// The folder with the crates of drivers.
const DRIVERS: &str = "drivers";
/// A use of all that a module has.
const ALL: &str = "*";

/// Source files without tests, by their path in `src`, such as `rules/plan/mod.rs` and `drivers/gcp/lib.rs`.
pub struct Tree(BTreeMap<PathBuf, Source>);

struct Source {
    text: String,
    paths: Vec<Mention>,
}

/// A path that a file names.
struct Mention {
    /// Segments as written, such as `super`, `plan`, `Plan`.
    path: Vec<String>,
    /// Its name in the file: the last segment, or the name after `as`.
    name: String,
    /// It is passed on, by `pub use`.
    is_passed_on: bool,
    /// The file uses it.
    is_used: bool,
}

/// A crate of the workspace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    /// As in code: `mcm`, `mcm_driver`, `mcm_driver_metal_stack`.
    pub name: String,
    /// Its folder in `src`.
    pub folder: PathBuf,
}

/// A module: its crate and its path in it.
#[derive(Clone)]
struct Module {
    owner: Crate,
    path: Vec<String>,
}

impl Tree {
    /// The files of a workspace.
    pub fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        for (owner, source) in crates_of(root) {
            let mut folders = vec![source.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                    if TEST_NAMES.contains(&name.as_str()) {
                        continue;
                    }
                    if path.is_dir() {
                        folders.push(path);
                    } else if name.ends_with(".rs") {
                        let file = owner.folder.join(path.strip_prefix(&source).unwrap());
                        files.push((file, fs::read_to_string(&path).unwrap()));
                    }
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

    /// The crates of the workspace that each file names, in uses or in code.
    pub fn crates_named(&self) -> BTreeSet<(PathBuf, String)> {
        let all: BTreeSet<String> = self.0.keys().map(|file| Crate::of(file).name).collect();
        let named = |source: &Source| {
            let firsts = source.paths.iter().filter_map(|mention| mention.path.first());
            firsts.filter(|first| all.contains(*first)).cloned().collect::<Vec<_>>()
        };
        let of_file =
            |(file, source): (&PathBuf, _)| named(source).into_iter().map(|name| (file.clone(), name)).collect();
        self.0.iter().flat_map::<Vec<_>, _>(of_file).collect()
    }

    /// The module path from the root of its crate; `None` for a path into a crate of others.
    fn absolute(&self, path: &[String], file: &Path) -> Option<Module> {
        let Module { owner, path: mut module } = Module::of(file);
        let first = path.first()?.as_str();
        let ups = path.iter().take_while(|part| *part == "super").count();
        let rest = match first {
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
                let is_child = self.file_of(&owner, &module).is_some();
                module.pop();
                if !is_child {
                    let other = self.crate_named(child)?;
                    return Some(Module { owner: other, path: path[1..].to_vec() });
                }
                path
            }
        };
        module.extend(rest.iter().cloned());
        Some(Module { owner, path: module })
    }

    /// The file that defines what a path names.
    fn resolve(&self, Module { owner, path }: &Module, depth: usize) -> Option<PathBuf> {
        let (length, file) =
            (0..=path.len()).rev().find_map(|length| Some((length, self.file_of(owner, &path[..length])?)))?;
        let Some(name) = path.get(length).filter(|_| depth < DEPTH) else { return Some(file) };
        let passed_on = |wanted: &str| {
            let paths = self.0.get(&file).into_iter().flat_map(|source| &source.paths);
            paths.filter(|mention| mention.is_passed_on && mention.name == wanted).collect::<Vec<_>>()
        };
        let further = |mention: &Mention, rest: &[String]| {
            let Module { owner, path } = self.absolute(&mention.path, &file)?;
            self.resolve(&Module { owner, path: [&path, rest].concat() }, depth + 1)
        };
        if let Some(found) = passed_on(name).first().and_then(|mention| further(mention, &path[length + 1..])) {
            return Some(found);
        }
        // A use of all passes on what the file does not define.
        let is_defined = self.0.get(&file).is_some_and(|source| defines(&source.text, name));
        let all = passed_on(ALL).into_iter().filter(|_| !is_defined);
        all.filter_map(|mention| further(mention, &path[length..])).next().or(Some(file.clone()))
    }

    fn file_of(&self, owner: &Crate, module: &[String]) -> Option<PathBuf> {
        let folder = owner.folder.join(module.iter().collect::<PathBuf>());
        let mut candidates = match module {
            [] => vec![folder.join("lib.rs")],
            _ => vec![folder.join("mod.rs"), folder.with_extension("rs")],
        };
        candidates.retain(|file| self.0.contains_key(file));
        candidates.pop()
    }

    fn crate_named(&self, name: &str) -> Option<Crate> {
        self.0.keys().map(|file| Crate::of(file)).find(|owner| owner.name == name)
    }
}

impl Crate {
    /// The crate of a file of a [`Tree`].
    pub fn of(file: &Path) -> Self {
        let length = if file.starts_with(DRIVERS) { 2 } else { 1 };
        let folder: PathBuf = file.iter().take(length).collect();
        let last = folder.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        let name = match length {
            2 => format!("mcm_driver_{last}"),
            _ if last == PRODUCT => last,
            _ => format!("mcm_{last}"),
        };
        Self { name, folder }
    }

    /// The beginning of the names of its tests: `api`, `driver_host`, `driver::<cloud>` for the driver of a cloud, and nothing
    /// for the product.
    pub fn place(&self) -> Vec<String> {
        let name = self.folder.file_name().map(|name| name.to_string_lossy().replace('-', "_"));
        let is_driver = self.folder.starts_with(DRIVERS);
        is_driver.then(|| "driver".to_owned()).into_iter().chain(name.filter(|name| name != PRODUCT)).collect()
    }
}

impl Module {
    fn of(file: &Path) -> Self {
        let owner = Crate::of(file);
        let path = module_of(file.strip_prefix(&owner.folder).unwrap_or(file));
        Self { owner, path }
    }
}

/// The crates of a workspace, with their folders of source files.
pub fn crates_of(root: &Path) -> Vec<(Crate, PathBuf)> {
    let source = root.join("src");
    let names = |folder: &Path| {
        let entries = fs::read_dir(source.join(folder)).unwrap().flatten();
        entries.map(|entry| folder.join(entry.file_name())).collect::<Vec<_>>()
    };
    let mut folders = [names(Path::new("")), names(Path::new(DRIVERS))].concat();
    folders.retain(|folder| source.join(folder).join("lib.rs").exists());
    folders.sort();
    folders.iter().map(|folder| (Crate::of(&folder.join("lib.rs")), source.join(folder))).collect()
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

/// A file has an item or a module of this name.
fn defines(text: &str, name: &str) -> bool {
    const ITEMS: [&str; 9] = ["mod", "struct", "enum", "trait", "fn", "const", "static", "type", "macro_rules!"];
    code_of(text).any(|(_, line)| {
        let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || "<({;:".contains(c)).collect();
        words.windows(2).any(|pair| ITEMS.contains(&pair[0]) && pair[1] == name)
    })
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
        found.extend(paths.into_iter().map(|(path, name)| Mention {
            path,
            name,
            is_passed_on: is_public,
            is_used: !is_public,
        }));
        other.push_str(before);
        other.push('\n');
        rest = next;
    }
    other.push_str(rest);
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let inline = other.split(|c: char| !is_part(c)).filter(|word| word.contains("::") && !word.starts_with("::"));
    let inline = inline.map(segments).filter_map(|path| Some((path.last()?.clone(), path)));
    found.extend(inline.map(|(name, path)| Mention { path, name, is_passed_on: false, is_used: true }));
    let words: BTreeSet<&str> = words_of(&other).collect();
    for mention in &mut found {
        mention.is_used |= is_type(&mention.name) && words.contains(mention.name.as_str());
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

/// The paths of a tree with braces, each with the name that it has here. A use of all has the path of its module.
pub fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let Some(open) = tree.find('{') else {
        let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        let mut path = segments(path);
        let is_all = path.last().is_some_and(|last| last == ALL);
        if is_all || path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let own = if is_all { ALL } else { path.last().map_or("", String::as_str) };
        let name = name.unwrap_or(own).trim().to_owned();
        return vec![(path, name)];
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
