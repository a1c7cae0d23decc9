//! Finds objects of the inventory by the names and paths in a class, as the reference does: a path is relative to the folder of
//! its kind in the datacenter, or begins with `/`. A name without `/` may be anywhere below that folder. `*` and `?` stand for
//! other characters.

use std::collections::BTreeMap;

use mcm_driver::{Code, DriverError};

use super::{
    calls::{Api, Found},
    filter::Filter,
    soap::{Ref, reference_of},
};

/// A kind of object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Its field in the class.
    pub field: &'static str,
    /// Name of its folder in a datacenter.
    root: &'static str,
    types: &'static [&'static str],
}

impl Kind {
    const fn new(field: &'static str, root: &'static str, types: &'static [&'static str]) -> Self {
        Self { field, root, types }
    }

    fn is(&self, object: &Ref) -> bool {
        self.types.contains(&object.kind.as_str())
    }
}

pub(crate) const FOLDER: Kind = Kind::new("folder", "vm", &["Folder"]);
pub(crate) const TEMPLATE: Kind = Kind::new("templateVM", "vm", &["VirtualMachine"]);
pub(crate) const DATASTORE: Kind = Kind::new("datastore", "datastore", &["Datastore"]);
pub(crate) const STORAGE_POD: Kind = Kind::new("datastoreCluster", "datastore", &["StoragePod"]);
pub(crate) const CLUSTER: Kind = Kind::new("computeCluster", "host", &["ClusterComputeResource"]);
pub(crate) const POOL: Kind = Kind::new("resourcePool", "host", &["ResourcePool", "VirtualApp"]);
pub(crate) const HOST: Kind = Kind::new("hostSystem", "host", &["HostSystem"]);
pub(crate) const NETWORK: Kind = Kind::new(
    "network",
    "network",
    &[
        "Network",
        "OpaqueNetwork",
        "DistributedVirtualPortgroup",
        "DistributedVirtualSwitch",
        "VmwareDistributedVirtualSwitch",
    ],
);
const DATACENTER: Kind = Kind::new("datacenter", "", &["Datacenter"]);

/// No inventory is deeper.
const DEEPEST: usize = 64;

impl Api {
    /// The path of the datacenter that a class names by its path, its name or a pattern, or of the only one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: no datacenter fits, or several do.
    pub(crate) async fn datacenter(&self, given: &str) -> Result<String, DriverError> {
        let path = plain(given);
        if is_exact(path) && self.object_at(path).await?.is_some_and(|found| DATACENTER.is(&found)) {
            return Ok(path.to_owned());
        }
        let root = self.managers_root().await?;
        let mut all = self.below(&root).await?;
        all.retain(|object, _| DATACENTER.is(object));
        let pattern = if path.is_empty() { "*" } else { path };
        let mut found: Vec<String> = all.into_values().filter(|path| fits(pattern, path)).collect();
        match (found.pop(), found.len()) {
            (Some(path), 0) => Ok(path),
            (None, _) => Err(wrong(format!("there is no datacenter {path}").trim_end().to_owned())),
            (Some(last), _) => {
                found.push(last);
                found.sort();
                let names = found.join(", ");
                let text =
                    format!("there are several datacenters: name one by its path in providerSpec.datacenter: {names}");
                Err(wrong(text))
            }
        }
    }

    /// The path of the datacenter of a class, and its folder with the VMs. Most classes name exact paths, which take one look.
    ///
    /// # Errors
    /// As for [`Self::datacenter`] and [`Self::find`].
    pub(crate) async fn folder(&self, datacenter: &str, folder: &str) -> Result<(String, Ref), DriverError> {
        let path = plain(datacenter);
        if is_exact(path)
            && !folder.starts_with('/')
            && let Some(found) = self.find_exactly(path, FOLDER, folder).await?
        {
            return Ok((path.to_owned(), found));
        }
        let path = self.datacenter(datacenter).await?;
        let found = self.find(&path, FOLDER, folder).await?;
        Ok((path, found))
    }

    /// The only object that a class names.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: no object fits, or several do.
    pub(crate) async fn find(&self, datacenter: &str, kind: Kind, text: &str) -> Result<Ref, DriverError> {
        let field = kind.field;
        let mut found = self.find_all(datacenter, kind, text).await?;
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(wrong(format!("there is no {field} {text} in datacenter {datacenter}"))),
            (Some(_), others) => {
                let text = format!("{field} {text} is the name of {} objects in datacenter {datacenter}", others + 1);
                Err(wrong(text))
            }
        }
    }

    /// The object at the path that a class names, if there is one: most classes name exact paths.
    pub(crate) async fn find_exactly(
        &self,
        datacenter: &str,
        kind: Kind,
        text: &str,
    ) -> Result<Option<Ref>, DriverError> {
        if has_glob(text) {
            return Ok(None);
        }
        let path = path_of(datacenter, kind, text);
        let found = self.object_at(&path).await?;
        if found.as_ref().is_none_or(|found| kind.is(found)) {
            return Ok(found);
        }
        // A host without a cluster is in an object with its name.
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(self.object_at(&format!("{path}/{name}")).await?.filter(|found| kind.is(found)))
    }

    /// All objects that a class may mean.
    pub(crate) async fn find_all(&self, datacenter: &str, kind: Kind, text: &str) -> Result<Vec<Ref>, DriverError> {
        if let Some(found) = self.find_exactly(datacenter, kind, text).await? {
            return Ok(vec![found]);
        }
        self.search(datacenter, kind, text).await
    }

    /// The same, also if several have the name.
    pub(crate) async fn search(&self, datacenter: &str, kind: Kind, text: &str) -> Result<Vec<Ref>, DriverError> {
        let top = format!("{datacenter}/{}", kind.root);
        let Some(root) = self.object_at(&top).await? else {
            return Err(wrong(format!("there is no datacenter {datacenter}")));
        };
        let pattern = text.trim_start_matches('/').strip_prefix(&format!("{top}/")).unwrap_or(text);
        let all = self.below(&root).await?;
        let is_meant = |(object, path): &(Ref, String)| kind.is(object) && fits(pattern.trim_start_matches("./"), path);
        Ok(all.into_iter().filter(is_meant).map(|(object, _)| object).collect())
    }

    pub(crate) async fn object_at(&self, path: &str) -> Result<Option<Ref>, DriverError> {
        self.at(path).await.map_err(|failure| self.error(&failure, &format!("a look at {path}")))
    }

    async fn managers_root(&self) -> Result<Ref, DriverError> {
        let managers = self.soap.managers().await;
        managers.map(|all| all.root).map_err(|failure| self.error(&failure, "a login"))
    }

    /// All objects below a folder, with their paths from there.
    async fn below(&self, root: &Ref) -> Result<BTreeMap<Ref, String>, DriverError> {
        let read = |found: Found<'_, '_>| {
            let parent = found.value("parent").and_then(reference_of);
            Some(Some((found.reference()?, (found.text("name")?, parent))))
        };
        let all = self.retrieve(&[Filter::below(root.clone(), &["name", "parent"])], read).await;
        let all = all.map_err(|failure| self.error(&failure, "a look at the inventory"))?;
        Ok(paths(&all.into_iter().collect(), root))
    }
}

/// The paths of objects with names and parents.
fn paths(all: &BTreeMap<Ref, (String, Option<Ref>)>, root: &Ref) -> BTreeMap<Ref, String> {
    let path = |object: &Ref| {
        let mut parts = Vec::new();
        let mut at = object;
        while at != root {
            let (name, parent) = all.get(at).filter(|_| parts.len() < DEEPEST)?;
            parts.push(name.as_str());
            at = parent.as_ref()?;
        }
        parts.reverse();
        Some(parts.join("/"))
    };
    all.keys().filter_map(|object| Some((object.clone(), path(object)?))).collect()
}

/// The path from the root of the inventory.
fn path_of(datacenter: &str, kind: Kind, text: &str) -> String {
    if let Some(absolute) = text.strip_prefix('/') {
        return absolute.trim_end_matches('/').to_owned();
    }
    let relative = text.trim_start_matches("./").trim_end_matches('/');
    let path = format!("{datacenter}/{}/{relative}", kind.root);
    path.trim_end_matches('/').to_owned()
}

/// The path of a datacenter without the parts that lead to the root.
fn plain(datacenter: &str) -> &str {
    datacenter.trim_matches('/').trim_start_matches("./")
}

/// The text may be the path of one object.
fn is_exact(text: &str) -> bool {
    !text.is_empty() && !has_glob(text)
}

fn has_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// The pattern fits the path; a pattern without `/` fits the last part of it.
fn fits(pattern: &str, path: &str) -> bool {
    if !pattern.contains('/') {
        return part_fits(pattern, path.rsplit('/').next().unwrap_or_default());
    }
    let (patterns, parts): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    patterns.len() == parts.len() && patterns.into_iter().zip(parts).all(|(pattern, part)| part_fits(pattern, part))
}

/// Matches `*` with any characters, and `?` with one.
fn part_fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // `fitting[n]`: the pattern so far fits the first `n` characters of the text.
    let mut fitting = vec![false; text.len() + 1];
    fitting[0] = true;
    for c in pattern {
        let mut next = vec![false; text.len() + 1];
        if c == '*' {
            let mut any = false;
            for (next, fits) in next.iter_mut().zip(&fitting) {
                any |= *fits;
                *next = any;
            }
        } else {
            for (index, other) in text.iter().enumerate() {
                next[index + 1] = fitting[index] && (c == '?' || c == *other);
            }
        }
        fitting = next;
    }
    fitting.last().copied().unwrap_or_default()
}

fn wrong(text: String) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("workers", "DC0/vm/workers")]
    #[case("a/b/", "DC0/vm/a/b")]
    #[case("./a", "DC0/vm/a")]
    #[case("/DC1/vm/a", "DC1/vm/a")]
    #[case::the_folder_itself("", "DC0/vm")]
    fn a_path_is_relative_to_the_folder_of_its_kind(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(path_of("DC0", FOLDER, text), expected);
    }

    #[rstest]
    #[case("b", "a/b", true)]
    #[case("a/b", "a/b", true)]
    #[case("b", "b/c", false)]
    #[case("a/b", "x/a/b", false)]
    #[case("*", "x/y", true)]
    #[case("*/b", "a/b", true)]
    #[case("*/b", "a/a/b", false)]
    #[case("a*c?e", "abbcde", true)]
    #[case("a*c?e", "abbce", false)]
    #[case("", "", true)]
    #[case("**", "ä", true)]
    #[case("?", "", false)]
    fn a_pattern_fits_a_path_part_by_part(#[case] pattern: &str, #[case] path: &str, #[case] expected: bool) {
        assert_eq!(fits(pattern, path), expected);
    }

    #[test]
    fn a_path_is_made_of_the_names_down_from_the_root() {
        let object = |id: &str| Ref::new("Folder", id);
        let root = object("root");
        let entry = |id: &str, parent: &str| (object(id), (id.to_owned(), Some(object(parent))));
        let all = [entry("a", "root"), entry("b", "a"), entry("x", "elsewhere"), entry("y", "z"), entry("z", "y")];
        let found = paths(&all.into_iter().collect(), &root);
        assert_eq!(found, [(object("a"), "a".to_owned()), (object("b"), "a/b".to_owned())].into());
    }
}
