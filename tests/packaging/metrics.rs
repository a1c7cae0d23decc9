//! The families of metrics in the source.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

use super::ROOT;

/// A family, as its `Desc` in the source describes it.
#[derive(Debug)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The help text.
    pub help: String,
    pub labels: Vec<String>,
}

/// All families, by name. The code of tests is left out.
pub fn families() -> BTreeMap<String, Family> {
    let texts: Vec<String> = sources("src");
    let lists = Regex::new(r"const ([A-Z_]*LABELS): \[&str; \d+\] =\s*\[([^\]]*)\]").unwrap();
    let lists: BTreeMap<&str, &str> = texts
        .iter()
        .flat_map(|text| lists.captures_iter(text))
        .map(|found| (found.get(1).unwrap().as_str(), found.get(2).unwrap().as_str()))
        .collect();
    let desc = Regex::new(
        r#"(?:Desc(?:::<\d+>)?::(counter|gauge|histogram)|plain)\(\s*"((?:mcm|process|rest_client)_[a-z_]+)",\s*"((?:[^"\\]|\\(?s:.))*)"(?:,\s*(?:\[([^\]]*)\]|([A-Z_]+)))?"#,
    )
    .unwrap();
    let mut found = BTreeMap::new();
    let break_of_line = Regex::new(r"\\\n\s*").unwrap();
    for one in texts.iter().flat_map(|text| desc.captures_iter(text)) {
        let group = |index| one.get(index).map(|text: regex::Match<'_>| text.as_str());
        let labels = match (group(1), group(4), group(5)) {
            (None, ..) => r#""name", "namespace""#,
            (_, Some(list), _) => list,
            (_, _, Some(list)) => lists.get(list).unwrap_or_else(|| panic!("labels {list} are not found")),
            _ => panic!("{} has no labels", &one[2]),
        };
        let labels = labels.split(',').map(|label| label.trim().trim_matches('"').to_owned());
        let family = Family {
            kind: group(1).unwrap_or("gauge").to_owned(),
            help: break_of_line.replace_all(&one[3], "").into_owned(),
            labels: labels.filter(|label| !label.is_empty()).collect(),
        };
        found.insert(one[2].to_owned(), family);
    }
    assert!(found.len() > 60, "only {} families were found", found.len());
    found
}

/// The family of a series, which has a suffix if it belongs to a histogram.
pub fn family_of<'a>(families: &'a BTreeMap<String, Family>, series: &str) -> Option<&'a Family> {
    let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| series.strip_suffix(suffix));
    let histogram = base.and_then(|base| families.get(base)).filter(|family| family.kind == "histogram");
    families.get(series).or(histogram)
}

/// The texts of the source files below a folder, without their tests.
fn sources(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT).join(folder)];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                if !is_of_tests(&path) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_of_tests(&path) {
                let text = fs::read_to_string(path).unwrap();
                found.push(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned());
            }
        }
    }
    found
}

fn is_of_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests" || name == "testing" || name == "target")
}

#[test]
fn families_have_their_labels_and_help() {
    let all = families();
    let phase = &all["mcm_machine_current_status_phase"];
    assert_eq!((phase.kind.as_str(), &phase.labels[..]), ("gauge", &["name".to_owned(), "namespace".to_owned()][..]));
    assert!(phase.help.contains("0 Pending, 1 Running"), "{}", phase.help);
    assert_eq!(all["mcm_machine_join_duration_seconds"].labels.len(), 4);
    assert_eq!(all["mcm_machine_set_status_replicas"].labels, ["name", "namespace"]);
    assert!(family_of(&all, "mcm_workqueue_work_duration_seconds_bucket").is_some());
    assert!(family_of(&all, "mcm_machine_items_total_bucket").is_none());
}
