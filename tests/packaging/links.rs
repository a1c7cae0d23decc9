//! Links between the pages: files and anchors exist, and every page of `docs` is in the book.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use regex::Regex;

use super::ROOT;

/// Folders without files of the project.
const SKIPPED: [&str; 3] = ["target", "node_modules", "vendor"];

/// The files below the root with one of the extensions, or without any, relative to it.
pub fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // A link leads to files that are found where they are.
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                    folders.push(path);
                }
            } else if extensions.contains(&&*path.extension().unwrap_or_default().to_string_lossy()) {
                found.push(path.strip_prefix(ROOT).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(Path::new(ROOT).join(path)).ok()
}

/// A page without its code, line by line.
fn prose(page: &str) -> Vec<String> {
    let code = Regex::new("`[^`]*`").unwrap();
    let mut is_code = false;
    page.lines()
        .map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            if is_fence || is_code { String::new() } else { code.replace_all(line, "`c`").into_owned() }
        })
        .collect()
}

/// Targets of links, with the number of their line.
fn links(page: &str) -> Vec<(usize, String)> {
    let link = Regex::new(r"\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)").unwrap();
    let lines = prose(page);
    let lines = lines.iter().zip(1..);
    lines
        .flat_map(|(line, number)| {
            link.captures_iter(line).map(|found| (number, found[1].to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

/// The anchors of a page, as GitHub and mdBook make them from its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut found = BTreeSet::new();
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let heading = link.replace_all(heading.trim_start_matches('#').trim(), "$1").to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let times = seen.entry(anchor.clone()).or_default();
        found.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    found
}

/// A path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            other => found.push(other),
        }
    }
    found
}

/// Why a link of a page leads nowhere.
fn problem(from: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let to = if path.is_empty() { from.to_owned() } else { resolved(&from.parent().unwrap().join(path)) };
    if !Path::new(ROOT).join(&to).exists() {
        return Some(format!("{} does not exist", to.display()));
    }
    let anchor = anchor.filter(|_| to.extension().is_some_and(|extension| extension == "md"))?;
    let page = read(&to)?;
    (!anchors(&page).contains(anchor)).then(|| format!("{} has no heading #{anchor}", to.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = files(&["md"]);
    let mut checked = 0;
    let mut problems = Vec::new();
    for page in &pages {
        for (line, target) in links(&read(page).unwrap()) {
            checked += 1;
            problems.extend(
                problem(page, &target).map(|problem| format!("{}:{line}: {target}: {problem}", page.display())),
            );
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(pages.len() > 50 && checked > 400, "{} pages, {checked} links", pages.len());
}

/// Texts in code, manifests and scripts, such as hints and comments.
#[test]
fn every_page_that_the_code_names_exists() {
    let name = Regex::new(r"\bdocs/[A-Za-z0-9/_-]+\.md(?:#[a-z0-9_-]+)?").unwrap();
    let mut checked = 0;
    let mut problems = Vec::new();
    let from = Path::new("README.md");
    let sources = files(&["rs", "yaml", "sh", "toml", "py", "go", "proto", ""]);
    for file in sources.into_iter().filter(|file| !file.starts_with("tests/packaging")) {
        for found in name.find_iter(&read(&file).unwrap_or_default()) {
            checked += 1;
            problems.extend(problem(from, found.as_str()).map(|problem| format!("{}: {problem}", file.display())));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(checked > 20, "{checked}");
}

#[test]
fn every_page_of_the_docs_is_in_the_book() {
    let summary = Path::new("docs/SUMMARY.md");
    let listed: Vec<PathBuf> =
        links(&read(summary).unwrap()).into_iter().map(|(_, target)| Path::new("docs").join(target)).collect();
    let unique: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(listed.len(), unique.len(), "a page is in SUMMARY.md twice");
    let missing: Vec<PathBuf> = files(&["md"])
        .into_iter()
        .filter(|page| page.starts_with("docs") && page != summary && !unique.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn broken_links_are_found() {
    let from = Path::new("docs/operations.md");
    assert_eq!(problem(from, "drivers.md#codes"), None);
    assert_eq!(problem(from, "#metrics"), None);
    assert_eq!(problem(from, "https://example.org/#x"), None);
    assert_eq!(problem(from, "../config/rbac"), None);
    assert!(problem(from, "drivers.md#code").is_some());
    assert!(problem(from, "../docs/absent.md").is_some());
    assert!(problem(from, "#absent").is_some());
    let page = "# A `b` (c): d\n\n## A\n## A\n\n```\n# no heading\n[no](link)\n```\n`[no](link)` [a](b#c) ![i](j)\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a", "a-1", "a-b-c-d"]);
    assert_eq!(links(page), [(10, "b#c".to_owned()), (10, "j".to_owned())]);
}
