//! The custom resource definitions as YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::api::crd::{crds, yaml};
use mcm_capi as capi;

/// A definition cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The kind does not exist.
    #[error("print the definition of kind {given:?}: there is no such kind, use one of {known}")]
    UnknownKind {
        /// The kind in the argument.
        given: String,
        /// All kinds.
        known: String,
        /// The kind that is spelled most alike, if one is.
        alike: Option<String>,
    },
    /// A definition cannot be written as YAML.
    #[error("print the definition {name} as YAML")]
    Yaml {
        /// Name of the definition.
        name: String,
        /// The cause.
        #[source]
        source: serde_yaml_ng::Error,
    },
}

/// One definition by its kind, plural, singular or short name, or all of them.
///
/// # Errors
/// The kind does not exist.
pub fn render(kind: Option<&str>) -> Result<String, RenderError> {
    let Some(kind) = kind else { return documents(&crds()) };
    let mut all = crds();
    all.extend(capi::crd::crds());
    let known: Vec<_> = all.iter().map(|crd| crd.spec.names.kind.clone()).collect();
    all.retain(|crd| is_called(crd, kind));
    if all.is_empty() {
        let (known, alike) = (known.join(", "), alike(kind, &known));
        return Err(RenderError::UnknownKind { given: kind.into(), known, alike });
    }
    documents(&all)
}

/// The definitions of the provider for Cluster API.
///
/// # Errors
/// One cannot be written, which does not happen.
pub fn render_cluster_api() -> Result<String, RenderError> {
    documents(&capi::crd::crds())
}

/// The definitions of the stand-in for core, which core replaces by its own.
///
/// # Errors
/// One cannot be written, which does not happen.
pub fn render_stand_in() -> Result<String, RenderError> {
    documents(&capi::crd::stand_in())
}

/// The kind that was probably meant.
fn alike(given: &str, kinds: &[String]) -> Option<String> {
    const ALIKE: f64 = 0.8;
    let likeness = |kind: &String| strsim::jaro_winkler(&kind.to_lowercase(), &given.to_lowercase());
    let best = kinds.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(best) >= ALIKE).then(|| best.clone())
}

fn documents(crds: &[CustomResourceDefinition]) -> Result<String, RenderError> {
    let documents: Result<Vec<_>, _> = crds.iter().map(document).collect();
    Ok(documents?.join("---\n"))
}

fn document(crd: &CustomResourceDefinition) -> Result<String, RenderError> {
    let name = || crd.metadata.name.clone().unwrap_or_default();
    yaml(crd).map_err(|source| RenderError::Yaml { name: name(), source })
}

fn is_called(crd: &CustomResourceDefinition, name: &str) -> bool {
    let names = &crd.spec.names;
    let short = names.short_names.iter().flatten();
    short.chain([&names.kind, &names.plural]).chain(&names.singular).any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, env, fs, path::PathBuf};

    use rstest::rstest;

    use super::*;
    use crate::api::crd::{HEADER, file_name};

    #[rstest]
    #[case("MachineClass")]
    #[case("machineclasses")]
    #[case("machineclass")]
    #[case("MCC")]
    fn prints_one_kind_by_any_of_its_names(#[case] name: &str) {
        let text = render(Some(name)).unwrap();
        assert!(text.contains("name: machineclasses.machine.sapcloud.io\n"));
        assert!(!text.contains("\n---\n"));
    }

    #[test]
    fn prints_all_kinds_as_documents_of_one_stream() {
        let text = render(None).unwrap();
        assert_eq!(text.split("\n---\n").count(), crds().len());
    }

    #[test]
    fn an_unknown_kind_is_answered_with_those_there_are() {
        let text = render(Some("pod")).unwrap_err().to_string();
        assert_eq!(
            text,
            "print the definition of kind \"pod\": there is no such kind, use one of MachineClass, Machine, MachineSet, \
             MachineDeployment, MCMCluster, MCMClusterTemplate, MCMMachine, MCMMachineTemplate, MCMMachinePool, \
             MCMMachinePoolTemplate, MCMMigration"
        );
    }

    #[rstest]
    #[case("Machin", Some("Machine"))]
    #[case("machinedeploymnt", Some("MachineDeployment"))]
    #[case("mcmmachinepol", Some("MCMMachinePool"))]
    #[case("pod", None)]
    fn a_misspelled_kind_is_recognized(#[case] given: &str, #[case] expected: Option<&str>) {
        let Err(RenderError::UnknownKind { alike, .. }) = render(Some(given)) else { panic!("{given} is known") };
        assert_eq!(alike.as_deref(), expected);
    }

    #[test]
    fn the_kinds_of_cluster_api_are_printed_on_request_and_by_name() {
        let text = render_cluster_api().unwrap();
        assert_eq!(text.split("\n---\n").count(), capi::crd::crds().len());
        assert!(!render(None).unwrap().contains("infrastructure.cluster.x-k8s.io"), "they need core");
        assert!(!text.contains(" cluster.x-k8s.io\n"), "core brings its own");
        assert_eq!(render_stand_in().unwrap().split("\n---\n").count(), capi::crd::stand_in().len());
        assert!(text.contains(render(Some("mcmmachines")).unwrap().trim_start_matches(HEADER)));
    }

    /// `UPDATE_CRDS=1` writes the folder instead of comparing it.
    #[test]
    fn crds_on_disk_are_those_of_the_types() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds");
        compare(&folder, wanted_files(&crds()));
        // Without core they are of no use, so `kubectl apply -f crds/` passes this folder over.
        compare(&folder.join("cluster-api"), wanted_files(&capi::crd::crds()));
        compare(&folder.join("stand-in"), wanted_files(&capi::crd::stand_in()));
    }

    fn compare(folder: &PathBuf, wanted: BTreeMap<String, String>) {
        if env::var_os("UPDATE_CRDS").is_some() {
            fs::create_dir_all(folder).unwrap();
            for stale in files_in(folder).keys().filter(|name| !wanted.contains_key(*name)) {
                fs::remove_file(folder.join(stale)).unwrap();
            }
            for (name, text) in &wanted {
                fs::write(folder.join(name), text).unwrap();
            }
        }
        let found = files_in(folder);
        let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
        let help = "crds/ is not what the types say; write it anew with `make crds` and commit the difference";
        assert_eq!(names(&found), names(&wanted), "{help}");
        for (name, text) in &wanted {
            assert!(found.get(name) == Some(text), "{help}: crds/{name} differs");
        }
    }

    fn wanted_files(crds: &[CustomResourceDefinition]) -> BTreeMap<String, String> {
        let mut files: BTreeMap<_, _> = crds.iter().map(|crd| (file_name(crd), yaml(crd).unwrap())).collect();
        let listing: String = files.keys().map(|name| format!("- {name}\n")).collect();
        // Without an extension, so that `kubectl apply -f crds/` passes it over.
        files.insert(
            "Kustomization".into(),
            format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{listing}"),
        );
        files
    }

    fn files_in(folder: &PathBuf) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.is_file())
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
            .collect()
    }
}
