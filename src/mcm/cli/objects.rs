//! Objects in files: YAML or JSON, several in one file, from standard input too.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::api::decode::{self, YamlError, YamlLimits};

/// The most that a file may contain, in bytes: some ten thousand machines.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The objects of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is too large.
    #[error("read {path}: more than {} MiB; split it", MOST_BYTES / 1024 / 1024)]
    TooLarge {
        /// The file.
        path: String,
    },
    /// A document is neither YAML nor JSON.
    #[error("read document {number} of {path}")]
    Parse {
        /// The file.
        path: String,
        /// The document, from 1.
        number: usize,
        /// The cause.
        #[source]
        source: YamlError,
    },
    /// A document is no object of Kubernetes.
    #[error("read document {number} of {path}: it has no apiVersion and kind")]
    NoObject {
        /// The file.
        path: String,
        /// The document, from 1.
        number: usize,
    },
}

/// The objects of a file, of the YAML and JSON files in a folder, or of standard input for "-".
///
/// # Errors
/// A file cannot be read, or a document in it is not an object.
pub(super) fn read(path: &Path) -> Result<Vec<Value>, ObjectsError> {
    read_within(path, FolderDepth::Folder)
}

/// The files of a folder that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderDepth {
    /// Files directly in the folder.
    Folder,
    /// Files of all folders below it as well.
    Folders,
}

/// The same, with the files of a folder down to a depth.
///
/// # Errors
/// A file cannot be read, or a document in it is not an object.
pub(super) fn read_within(path: &Path, depth: FolderDepth) -> Result<Vec<Value>, ObjectsError> {
    if !path.is_dir() {
        return read_file(path);
    }
    let mut files = Vec::new();
    let listed = find_files(path, depth, &mut files);
    listed.map_err(|source| ObjectsError::Read { path: path.display().to_string(), source })?;
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

/// Finds the files with objects in a folder, in order of their names. As kubectl does, it follows links to files and not to folders.
fn find_files(folder: &Path, depth: FolderDepth, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if depth == FolderDepth::Folders {
                find_files(&path, depth, files)?;
            }
        } else if path.is_file() && has_objects(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn has_objects(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["yaml", "yml", "json"].contains(&extension)
}

fn read_file(path: &Path) -> Result<Vec<Value>, ObjectsError> {
    parse(&path.display().to_string(), &read_text(path)?)
}

/// The text of a file, or of standard input for `-`.
///
/// # Errors
/// It cannot be read, or is larger than 64 MiB.
pub(super) fn read_text(path: &Path) -> Result<String, ObjectsError> {
    let open = || -> io::Result<Box<dyn Read>> {
        if path == Path::new("-") { Ok(Box::new(io::stdin().lock())) } else { Ok(Box::new(fs::File::open(path)?)) }
    };
    let path = path.display().to_string();
    match open() {
        Ok(file) => read_up_to(MOST_BYTES, file, &path),
        Err(source) => Err(ObjectsError::Read { path, source }),
    }
}

fn read_up_to(most: u64, file: impl Read, path: &str) -> Result<String, ObjectsError> {
    let mut text = String::new();
    match file.take(most + 1).read_to_string(&mut text) {
        Ok(size) if u64::try_from(size).is_ok_and(|size| size <= most) => Ok(text),
        Ok(_) => Err(ObjectsError::TooLarge { path: path.to_owned() }),
        Err(source) => Err(ObjectsError::Read { path: path.to_owned(), source }),
    }
}

/// The objects of a text. JSON is YAML, except that it may be indented with tabs.
fn parse(path: &str, text: &str) -> Result<Vec<Value>, ObjectsError> {
    if let Ok(values) = serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>() {
        return check(path, values);
    }
    match decode::yaml_documents(text, YamlLimits::FILES) {
        (values, None) => check(path, values),
        (values, Some(source)) => Err(ObjectsError::Parse { path: path.to_owned(), number: values.len() + 1, source }),
    }
}

fn check(path: &str, values: Vec<Value>) -> Result<Vec<Value>, ObjectsError> {
    let is_object = |value: &Value| value["apiVersion"].is_string() && value["kind"].is_string();
    match values.iter().position(|value| !value.is_null() && !is_object(value)) {
        Some(index) => Err(ObjectsError::NoObject { path: path.to_owned(), number: index + 1 }),
        None => Ok(values.into_iter().filter(|value| !value.is_null()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::proptest;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::yaml("apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: B\n", &["A", "B"])]
    #[case::json("{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"A\"\n}", &["A"])]
    #[case::json_after_json("{\"apiVersion\":\"v1\",\"kind\":\"A\"}\n{\"apiVersion\":\"v1\",\"kind\":\"B\"}", &["A", "B"])]
    #[case::nothing("---\n# nothing\n", &[])]
    fn documents_of_both_formats_are_read(#[case] text: &str, #[case] kinds: &[&str]) {
        let objects = parse("x", text).unwrap();
        assert_eq!(objects.iter().map(|object| object["kind"].as_str().unwrap()).collect::<Vec<_>>(), kinds);
    }

    #[rstest]
    #[case("apiVersion: v1\nkind: A\n---\na: [", "read document 2 of x")]
    #[case("apiVersion: v1\nkind: A\n---\nhello", "read document 2 of x: it has no apiVersion and kind")]
    fn a_document_that_cannot_be_read_is_named(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse("x", text).unwrap_err().to_string(), message);
    }

    #[test]
    fn a_file_has_a_limit() {
        assert_eq!(read_up_to(3, &b"abc"[..], "x").unwrap(), "abc");
        let error = read_up_to(3, &b"abcd"[..], "x").unwrap_err();
        assert_eq!(error.to_string(), "read x: more than 64 MiB; split it");
    }

    #[test]
    fn the_files_of_a_folder_are_read_in_order_and_those_below_it_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, kind: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("apiVersion: v1\nkind: {kind}\n")).unwrap();
        };
        for (path, kind) in [("b.yaml", "B"), ("a/deep/one.json", "A"), ("a/notes.txt", "X"), ("c.yml", "C")] {
            write(path, kind);
        }
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/circle")).unwrap();
        let kinds = |depth| -> Vec<String> {
            let objects = read_within(folder.path(), depth).unwrap();
            objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(FolderDepth::Folder), ["B", "C"]);
        assert_eq!(kinds(FolderDepth::Folders), ["A", "B", "C"]);
    }

    /// A list of two lists of two lists, and so on.
    fn doubled(times: usize) -> String {
        let line = |n: usize| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1);
        (0..times).map(line).fold("a0: &a0 [x]\n".to_owned(), |all, one| format!("{all}{one}"))
    }

    /// Few bytes that stand for many, and a depth that would overflow the stack.
    #[rstest]
    #[case::aliases(&doubled(30))]
    #[case::yaml_depth(&"- ".repeat(5_000))]
    #[case::json_depth(&"[".repeat(5_000))]
    #[case::a_megabyte_of_lists(&"[".repeat(1_000_000))]
    #[case::a_megabyte_of_maps(&format!("apiVersion: v1\nkind: Secret\ndata: {}", "{a: ".repeat(250_000)))]
    fn a_text_that_expands_without_end_is_refused(#[case] text: &str) {
        assert!(matches!(parse("x", text), Err(ObjectsError::Parse { .. })), "{:?}", parse("x", text));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[-a-z:{}\\[\\]\"'*&!|> \n0-9#,?%@`]{0,60}", any in ".*") {
            drop((parse("x", &text), parse("x", &any)));
        }
    }
}
