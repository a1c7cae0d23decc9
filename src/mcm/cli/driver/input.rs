//! The files of a test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec, Secret};
use serde::de::DeserializeOwned;

use super::{error::NotTested, options::TestOptions};
use crate::{
    api::machine::MachineClass,
    cli::objects::{self, ObjectsError},
};
use mcm_driver::{SecretData, conformance::ConformanceSubject};
use mcm_driver_host::remote::RemoteDriver;
use mcm_insight::class::secret_data;

/// The annotation of a PersistentVolume with the ID that the driver must return.
const VOLUME_ID: &str = "volume-id";

/// Objects for the test of a driver.
pub(super) struct DriverTestInput {
    pub class: MachineClass,
    invalid: Option<MachineClass>,
    foreign: Option<MachineClass>,
    secret: SecretData,
    volumes: Vec<(PersistentVolumeSpec, Option<String>)>,
}

impl DriverTestInput {
    pub(super) fn read(options: &TestOptions) -> Result<Self, NotTested> {
        let class = |path: &PathBuf| of_file(path, class_of);
        let mut secret = SecretData::default();
        for (path, is_required) in
            options.files.iter().map(|path| (path, false)).chain(options.secret.iter().map(|path| (path, true)))
        {
            secret.0.extend(of_file(path, |path| secret_of(path, is_required))?.0);
        }
        Ok(Self {
            class: class_of_files(&options.files)?,
            invalid: options.invalid_class.as_ref().map(class).transpose()?,
            foreign: options.foreign_class.as_ref().map(class).transpose()?,
            volumes: options.volumes.as_ref().map(|path| of_file(path, volumes_of)).transpose()?.unwrap_or_default(),
            secret,
        })
    }

    pub(super) fn subject(self, driver: &RemoteDriver, prefix: String) -> ConformanceSubject<'_> {
        ConformanceSubject {
            driver,
            class: self.class,
            invalid_class: self.invalid,
            foreign_class: self.foreign,
            secret: self.secret,
            volumes: self.volumes,
            prefix,
        }
    }
}

fn of_file<T>(path: &Path, read: impl FnOnce(&Path) -> Result<T>) -> Result<T, NotTested> {
    read(path).map_err(|error| match error.downcast::<ObjectsError>() {
        Ok(error) => error.into(),
        Err(source) => NotTested::File { path: path.to_path_buf(), source },
    })
}

/// The objects of a kind in a file. An error of a Secret names no values.
fn objects<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<Vec<T>> {
    let of_kind = objects::read(path)?.into_iter().filter(|object| object["kind"] == kind);
    of_kind
        .map(|object| serde_json::from_value(object).map_err(|_| anyhow::anyhow!("the {kind} in it is invalid")))
        .collect()
}

/// The class in one of some files.
fn class_of_files(paths: &[PathBuf]) -> Result<MachineClass, NotTested> {
    let mut classes = Vec::new();
    for path in paths {
        classes.extend(of_file(path, |path| objects(path, "MachineClass"))?);
    }
    let path = || paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    only(classes).map_err(|source| NotTested::File { path: path().into(), source })
}

fn class_of(path: &Path) -> Result<MachineClass> {
    only(objects(path, "MachineClass")?)
}

fn only(mut classes: Vec<MachineClass>) -> Result<MachineClass> {
    let (Some(mut class), true) = (classes.pop(), classes.is_empty()) else {
        bail!("it must contain exactly one MachineClass");
    };
    if class.provider.trim().is_empty() {
        bail!("the MachineClass names no provider");
    }
    class.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    Ok(class)
}

fn secret_of(path: &Path, is_required: bool) -> Result<SecretData> {
    let secrets: Vec<Secret> = objects(path, "Secret")?;
    if secrets.is_empty() && is_required {
        bail!("it contains no Secret");
    }
    let mut all = SecretData::default();
    for secret in secrets {
        all.0.extend(secret_data(secret).0);
    }
    Ok(all)
}

fn volumes_of(path: &Path) -> Result<Vec<(PersistentVolumeSpec, Option<String>)>> {
    let volumes: Vec<PersistentVolume> = objects(path, "PersistentVolume")?;
    let with_id = |volume: PersistentVolume| {
        let id = volume.metadata.annotations.and_then(|mut annotations| annotations.remove(VOLUME_ID));
        Ok((volume.spec.context("a PersistentVolume has no spec")?, id))
    };
    volumes.into_iter().map(with_id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fs;

    const CLASS: &str = "apiVersion: v1\nkind: MachineClass\nmetadata: {name: c}\nprovider: p\nproviderSpec: {}\n";

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.yaml");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[rstest]
    #[case::good(CLASS, None)]
    #[case::two(&format!("{CLASS}---\n{CLASS}"), Some("exactly one MachineClass"))]
    #[case::none("apiVersion: v1\nkind: Secret\n", Some("exactly one MachineClass"))]
    #[case::no_provider(
        "apiVersion: v1\nkind: MachineClass\nmetadata: {name: c}\nproviderSpec: {}\n",
        Some("names no provider")
    )]
    #[case::not_yaml("a: [", Some("read document 1 of"))]
    #[case::invalid(
        "apiVersion: v1\nkind: MachineClass\nmetadata: hunter2\n",
        Some("the MachineClass in it is invalid")
    )]
    fn a_class_is_read_or_refused_with_the_reason(#[case] text: &str, #[case] expected: Option<&str>) {
        let (_folder, path) = file(text);
        match (class_of(&path), expected) {
            (Ok(class), None) => assert_eq!(class.metadata.namespace.as_deref(), Some("default")),
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error:#}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn secrets_are_read_in_both_forms() {
        let (_folder, path) = file(
            "apiVersion: v1\nkind: Secret\ndata: {a: YQ==}\nstringData: {b: B}\n---\napiVersion: v1\nkind: Secret\nstringData: {a: x}\n",
        );
        let expected = [("a".to_owned(), b"x".to_vec()), ("b".to_owned(), b"B".to_vec())];
        assert_eq!(secret_of(&path, true).unwrap().0, expected.into());
        let (_folder, path) = file(CLASS);
        assert!(secret_of(&path, true).is_err() && secret_of(&path, false).is_ok());
    }

    #[test]
    fn volumes_say_which_id_is_expected() {
        let (_folder, path) = file(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {annotations: {volume-id: vol-1}}\nspec: {hostPath: {path: /x}}\n---\n\
             apiVersion: v1\nkind: PersistentVolume\nspec: {}\n",
        );
        let ids: Vec<Option<String>> = volumes_of(&path).unwrap().into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids, [Some("vol-1".to_owned()), None]);
    }
}
