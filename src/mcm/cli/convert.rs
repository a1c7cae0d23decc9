//! Converts objects between Cluster API and the native kinds.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use {
    mcm_conversion as conversion,
    mcm_conversion::{
        ConversionLoss, ConversionOptions, ConversionRefusal, ConversionResult, InfrastructureChoice, TemplateQuestion,
    },
};

use super::{
    answers::AnswerOptions,
    objects::{self, ObjectsError},
};
use mcm_insight::table::table_for;

/// Options of the command.
#[derive(Args, Debug)]
pub struct ConvertOptions {
    /// Target of the conversion
    #[arg(long, value_enum)]
    to: ConvertTarget,
    /// A file with objects as YAML or JSON, or "-" for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// Format of the result
    #[arg(short = 'o', long, value_enum, default_value_t = ConvertFormat::Yaml)]
    output: ConvertFormat,
    /// Cluster of MCM objects without the label cluster.x-k8s.io/cluster-name
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Infrastructure provider of the Cluster API machines
    #[arg(long, value_enum, default_value_t = ConvertProvider::Mcm)]
    infrastructure: ConvertProvider,
    /// Secret with the credentials of a MachineClass that is made from the template of another provider
    #[arg(long, value_name = "NAME")]
    credentials_secret: Option<String>,
    /// Secret with reusable join data, in place of the object of a bootstrap provider; NAME=SECRET for one deployment or pool
    #[arg(long, value_name = "[NAME=]SECRET")]
    bootstrap_secret: Vec<String>,
    #[command(flatten)]
    answers: AnswerOptions,
}

/// An infrastructure provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConvertProvider {
    /// mcm and its drivers
    Mcm,
    /// The provider of the cloud: CAPA for AWS, CAPG for GCP
    Cloud,
}

/// A side of the conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConvertTarget {
    /// machine.sapcloud.io/v1alpha1
    Native,
    /// cluster.x-k8s.io/v1beta2
    Capi,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConvertFormat {
    /// One document for each object
    Yaml,
    /// One object, or a List
    Json,
}

/// Objects cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A file cannot be read.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
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
    #[error("{} refused: {}", .0.len(), .0.iter().map(ConversionRefusal::to_string).collect::<Vec<_>>().join(", "))]
    Refused(Vec<ConversionRefusal>),
}

/// Reads, converts and returns the text to print. Writes what was lost to standard error.
///
/// # Errors
/// A file cannot be read, or something is refused. Then nothing is printed, so that half a result is never applied.
pub fn run(options: &ConvertOptions) -> Result<String, ConvertError> {
    let mut all = Vec::new();
    for path in &options.files {
        all.extend(objects::read(path)?);
    }
    if all.is_empty() {
        let paths: Vec<String> = options.files.iter().map(|path| path.display().to_string()).collect();
        return Err(ConvertError::Nothing { paths: paths.join(", ") });
    }
    let mut answers = options.answers.answers();
    options.bootstrap_secret.iter().for_each(|text| answers.add(TemplateQuestion::BootstrapSecret, text));
    let known = ConversionOptions {
        credentials: options.credentials_secret.clone(),
        answers,
        cluster: options.cluster.clone(),
        now: Some(Timestamp::now()),
        infrastructure: match options.infrastructure {
            ConvertProvider::Mcm => InfrastructureChoice::Mcm,
            ConvertProvider::Cloud => InfrastructureChoice::OfCloud,
        },
        ..ConversionOptions::default()
    };
    let ConversionResult { objects, losses, refusals } = match options.to {
        ConvertTarget::Native => conversion::to_native(&all, &known),
        ConvertTarget::Capi => conversion::to_capi(&all, &known),
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

fn print(objects: &[Value], format: ConvertFormat) -> Result<String, ConvertError> {
    match (format, objects) {
        (ConvertFormat::Yaml, objects) => {
            let documents: Result<Vec<String>, _> = objects.iter().map(serde_yaml_ng::to_string).collect();
            documents.map(|documents| documents.join("---\n")).map_err(ConvertError::Print)
        }
        (ConvertFormat::Json, [object]) => Ok(format!("{object:#}\n")),
        (ConvertFormat::Json, objects) => {
            Ok(format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": objects })))
        }
    }
}

/// A table for people, a line for each loss for others.
fn warnings(losses: &[ConversionLoss], is_terminal: bool) -> String {
    if !is_terminal {
        return losses.iter().map(|loss| format!("warning: {loss}\n")).collect();
    }
    let row = |loss: &ConversionLoss| {
        let ConversionLoss { object, path, reason, advice } = loss.clone();
        [object, path, reason, advice]
    };
    table_for(true, &["object", "not converted", "why", "note"], losses.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_a_table_for_people_and_lines_for_others() {
        let text = |text: &str| text.to_owned();
        let losses =
            [ConversionLoss { object: text("A a"), path: text("spec.b"), reason: text("is lost"), advice: text("") }];
        assert_eq!(warnings(&losses, false), "warning: A a: spec.b: is lost\n");
        assert!(warnings(&losses, true).lines().count() > 3);
    }

    #[test]
    fn several_objects_are_documents_in_yaml_and_a_list_in_json() {
        let objects = [json!({ "kind": "A" }), json!({ "kind": "B" })];
        assert_eq!(print(&objects, ConvertFormat::Yaml).unwrap(), "kind: A\n---\nkind: B\n");
        let list: Value = serde_json::from_str(&print(&objects, ConvertFormat::Json).unwrap()).unwrap();
        assert_eq!(list, json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
        assert_eq!(print(&objects[..1], ConvertFormat::Json).unwrap(), "{\n  \"kind\": \"A\"\n}\n");
    }
}
