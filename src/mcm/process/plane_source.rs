//! Where control planes are found, as flags name it.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

/// Where control planes are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaneSource {
    /// The kubeconfigs in a folder.
    Folder(PathBuf),
    /// The shoots of a seed, as gardenlet lays them out.
    Gardener,
    /// The Clusters of Cluster API.
    ClusterApi,
}

impl PlaneSource {
    /// The source that a text names: `gardener`, `cluster-api`, or `folder=` and an absolute path.
    pub fn parse(text: &str) -> Option<Self> {
        match (text, text.strip_prefix("folder=")) {
            ("gardener", _) => Some(Self::Gardener),
            ("cluster-api", _) => Some(Self::ClusterApi),
            (_, Some(folder)) if is_folder(Path::new(folder)) => Some(Self::Folder(folder.into())),
            _ => None,
        }
    }
}

/// True for an absolute path in its only spelling, except `/`.
pub(super) fn is_folder(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && is_plain && path.parent().is_some()
}

/// Requirements of the labels of a Namespace, as `kubectl get -l` takes them, without sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSelector(Vec<LabelRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelRule {
    Equal(String, String),
    Unequal(String, String),
    Present(String),
    Absent(String),
}

impl NamespaceSelector {
    /// The selector of a text: `key=value`, `key!=value`, `key` and `!key`, separated by commas.
    pub fn parse(text: &str) -> Option<Self> {
        text.split(',').map(rule_of).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|rule| match rule {
            LabelRule::Equal(key, value) => labels.get(key) == Some(value),
            LabelRule::Unequal(key, value) => labels.get(key) != Some(value),
            LabelRule::Present(key) => labels.contains_key(key),
            LabelRule::Absent(key) => !labels.contains_key(key),
        })
    }
}

impl fmt::Display for NamespaceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match rule {
                LabelRule::Equal(key, value) => write!(f, "{key}={value}"),
                LabelRule::Unequal(key, value) => write!(f, "{key}!={value}"),
                LabelRule::Present(key) => f.write_str(key),
                LabelRule::Absent(key) => write!(f, "!{key}"),
            }?;
        }
        Ok(())
    }
}

fn rule_of(text: &str) -> Option<LabelRule> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let key = |key: &str| {
        let is_key = !key.is_empty() && key.chars().all(|c| is_name(c) || c == '/');
        is_key.then(|| key.to_owned())
    };
    let value = |value: &str| value.chars().all(is_name).then(|| value.to_owned());
    let text = text.trim();
    if let Some((name, unwanted)) = text.split_once("!=") {
        return Some(LabelRule::Unequal(key(name)?, value(unwanted)?));
    }
    if let Some((name, wanted)) = text.split_once('=') {
        return Some(LabelRule::Equal(key(name)?, value(wanted.trim_start_matches('='))?));
    }
    match text.strip_prefix('!') {
        Some(name) => key(name).map(LabelRule::Absent),
        None => key(text).map(LabelRule::Present),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("gardener", Some(PlaneSource::Gardener))]
    #[case("cluster-api", Some(PlaneSource::ClusterApi))]
    #[case("folder=/planes", Some(PlaneSource::Folder("/planes".into())))]
    #[case("folder=planes", None)]
    #[case("folder=/", None)]
    #[case("file=/planes", None)]
    fn a_source_of_control_planes_is_named(#[case] text: &str, #[case] source: Option<PlaneSource>) {
        assert_eq!(PlaneSource::parse(text), source);
    }

    #[rstest]
    #[case("a=b", true)]
    #[case("a==b,c", true)]
    #[case("a=b,!d", true)]
    #[case("a!=x,c!=", true)]
    #[case("a=c", false)]
    #[case("a=b,d", false)]
    #[case("!c", false)]
    fn a_selector_has_the_syntax_of_kubectl(#[case] text: &str, #[case] is_selected: bool) {
        let labels = [("a", "b"), ("c", "x")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(NamespaceSelector::parse(text).unwrap().matches(&labels), is_selected);
    }

    #[test]
    fn a_selector_is_shown_as_it_is_parsed() {
        let text = "a=b,c!=d,e,!f,g=";
        assert_eq!(NamespaceSelector::parse(text).unwrap().to_string(), text);
        assert_eq!(NamespaceSelector::default().to_string(), "");
    }

    #[rstest]
    #[case("")]
    #[case("a in (b)")]
    #[case("a=b,,c")]
    #[case("=b")]
    fn what_is_no_selector_is_refused(#[case] text: &str) {
        assert!(NamespaceSelector::parse(text).is_none());
    }
}
