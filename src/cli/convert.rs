//! Converts objects between Cluster API and the native kinds.

use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::capi::conversion::{self, Conversion, Infrastructure, Loss, Options, Refusal};

/// The most that a file may contain, in bytes: some ten thousand machines.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Options of the command.
#[derive(Args, Debug)]
pub struct ConvertOptions {
    /// What to convert the objects to
    #[arg(long, value_enum)]
    to: Side,
    /// A file with objects as YAML or JSON, or "-" for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// How to print the result
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
    /// Cluster of native objects without the label cluster.x-k8s.io/cluster-name
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Infrastructure provider of the machines on the side of Cluster API
    #[arg(long, value_enum, default_value_t = Provider::Mcm)]
    infrastructure: Provider,
}

/// An infrastructure provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// mcm and its drivers
    Mcm,
    /// That of the cloud, such as CAPA for AWS and CAPG for GCP
    Cloud,
}

/// A side of the conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// machine.sapcloud.io/v1alpha1
    Native,
    /// cluster.x-k8s.io/v1beta2
    Capi,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One document for each object
    Yaml,
    /// One object, or a List
    Json,
}

/// Objects cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
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
    #[error("read {path}: more than {} MiB; convert it in parts", MOST_BYTES / 1024 / 1024)]
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
        source: serde_yaml_ng::Error,
    },
    /// A document is no object of Kubernetes.
    #[error("read document {number} of {path}: it has no apiVersion and kind")]
    NoObject {
        /// The file.
        path: String,
        /// The document, from 1.
        number: usize,
    },
    /// There is nothing to convert.
    #[error("there is no object in {paths}")]
    Nothing {
        /// The files.
        paths: String,
    },
    /// An object cannot be printed.
    #[error("print the result")]
    Print(#[source] serde_yaml_ng::Error),
    /// Something is refused.
    #[error("{} refused: {}", .0.len(), .0.iter().map(Refusal::to_string).collect::<Vec<_>>().join(", "))]
    Refused(Vec<Refusal>),
}

/// Reads, converts and returns the text to print. Writes what was lost to standard error.
///
/// # Errors
/// A file cannot be read, or something is refused. Then nothing is printed, so that half a result is never applied.
pub fn run(options: &ConvertOptions) -> Result<String, ConvertError> {
    let mut objects = Vec::new();
    for path in &options.files {
        objects.extend(parse(&path.display().to_string(), &read(path)?)?);
    }
    if objects.is_empty() {
        let paths: Vec<String> = options.files.iter().map(|path| path.display().to_string()).collect();
        return Err(ConvertError::Nothing { paths: paths.join(", ") });
    }
    let known = Options {
        cluster: options.cluster.clone(),
        now: Some(Timestamp::now()),
        infrastructure: match options.infrastructure {
            Provider::Mcm => Infrastructure::Mcm,
            Provider::Cloud => Infrastructure::OfCloud,
        },
        ..Options::default()
    };
    let Conversion { objects, losses, refusals } = match options.to {
        Side::Native => conversion::to_native(&objects, &known),
        Side::Capi => conversion::to_capi(&objects, &known),
    };
    if !refusals.is_empty() {
        return Err(ConvertError::Refused(refusals));
    }
    if !losses.is_empty() {
        // A closed standard error is no reason to fail.
        io::stderr().write_all(warnings(&losses, io::stderr().is_terminal()).as_bytes()).ok();
    }
    print(&objects, options.output)
}

fn read(path: &Path) -> Result<String, ConvertError> {
    let open = || -> io::Result<Box<dyn Read>> {
        if path == Path::new("-") { Ok(Box::new(io::stdin().lock())) } else { Ok(Box::new(fs::File::open(path)?)) }
    };
    let path = path.display().to_string();
    match open() {
        Ok(file) => read_up_to(MOST_BYTES, file, path),
        Err(source) => Err(ConvertError::Read { path, source }),
    }
}

fn read_up_to(most: u64, file: impl Read, path: String) -> Result<String, ConvertError> {
    let mut text = String::new();
    match file.take(most + 1).read_to_string(&mut text) {
        Ok(size) if u64::try_from(size).is_ok_and(|size| size <= most) => Ok(text),
        Ok(_) => Err(ConvertError::TooLarge { path }),
        Err(source) => Err(ConvertError::Read { path, source }),
    }
}

/// The objects of a text. JSON is YAML, except that it may be indented with tabs.
fn parse(path: &str, text: &str) -> Result<Vec<Value>, ConvertError> {
    if let Ok(values) = serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>() {
        return check(path, values);
    }
    let documents = serde_yaml_ng::Deserializer::from_str(text).enumerate().map(|(index, document)| {
        let parsed = Value::deserialize(document);
        parsed.map_err(|source| ConvertError::Parse { path: path.to_owned(), number: index + 1, source })
    });
    check(path, documents.collect::<Result<_, _>>()?)
}

fn check(path: &str, values: Vec<Value>) -> Result<Vec<Value>, ConvertError> {
    let is_object = |value: &Value| value["apiVersion"].is_string() && value["kind"].is_string();
    match values.iter().position(|value| !value.is_null() && !is_object(value)) {
        Some(index) => Err(ConvertError::NoObject { path: path.to_owned(), number: index + 1 }),
        None => Ok(values.into_iter().filter(|value| !value.is_null()).collect()),
    }
}

fn print(objects: &[Value], format: Format) -> Result<String, ConvertError> {
    match (format, objects) {
        (Format::Yaml, objects) => {
            let documents: Result<Vec<String>, _> = objects.iter().map(serde_yaml_ng::to_string).collect();
            documents.map(|documents| documents.join("---\n")).map_err(ConvertError::Print)
        }
        (Format::Json, [object]) => Ok(format!("{object:#}\n")),
        (Format::Json, objects) => {
            Ok(format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": objects })))
        }
    }
}

/// A table for people, a line for each loss for others.
fn warnings(losses: &[Loss], is_terminal: bool) -> String {
    if !is_terminal {
        return losses.iter().map(|loss| format!("warning: {loss}\n")).collect();
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["object", "not converted", "why", "note"]);
    for Loss { object, path, reason, advice } in losses {
        table.add_row([object, path, reason, advice]);
    }
    format!("{table}\n")
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
    fn losses_are_a_table_for_people_and_lines_for_others() {
        let text = |text: &str| text.to_owned();
        let losses = [Loss { object: text("A a"), path: text("spec.b"), reason: text("is lost"), advice: text("") }];
        assert_eq!(warnings(&losses, false), "warning: A a: spec.b: is lost\n");
        assert!(warnings(&losses, true).lines().count() > 3);
    }

    #[test]
    fn a_file_has_a_limit() {
        assert_eq!(read_up_to(3, &b"abc"[..], "x".into()).unwrap(), "abc");
        let error = read_up_to(3, &b"abcd"[..], "x".into()).unwrap_err();
        assert_eq!(error.to_string(), "read x: more than 64 MiB; convert it in parts");
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
    fn a_text_that_expands_without_end_is_refused(#[case] text: &str) {
        assert!(matches!(parse("x", text), Err(ConvertError::Parse { .. })), "{:?}", parse("x", text));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[-a-z:{}\\[\\]\"'*&!|> \n0-9#,?%@`]{0,60}", any in ".*") {
            drop((parse("x", &text), parse("x", &any)));
        }
    }

    #[test]
    fn several_objects_are_documents_in_yaml_and_a_list_in_json() {
        let objects = [json!({ "kind": "A" }), json!({ "kind": "B" })];
        assert_eq!(print(&objects, Format::Yaml).unwrap(), "kind: A\n---\nkind: B\n");
        let list: Value = serde_json::from_str(&print(&objects, Format::Json).unwrap()).unwrap();
        assert_eq!(list, json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
        assert_eq!(print(&objects[..1], Format::Json).unwrap(), "{\n  \"kind\": \"A\"\n}\n");
    }
}
