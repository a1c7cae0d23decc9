//! Checks classes before they are applied.

mod complete;
mod drivers;
mod error;
mod input;
mod report;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::{flags::SecretOptions, format::OutputFormat};
use drivers::DriverFlags;
use input::ClassFiles;
use report::CheckedClass;

#[cfg(feature = "remote")]
use super::flags::RemoteOptions;
pub use complete::{ClassCompleteOptions, complete};
pub use error::{NotChecked, NotCompleted};
use mcm_insight::class::{ClassFinding, ClassFindingVerdict, findings, look};
pub use report::ClassReport;

/// Sub-commands of `mcm class`.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// Check MachineClasses and report every problem with the path of its field
    ///
    /// Reads files, never a cluster. With --live it also checks with read-only calls to the cloud whether image, network and
    /// permissions exist.
    ///
    /// Exit code: 0 all classes are valid, 3 a class has errors, 1 the check could not run.
    #[command(
        after_help = "Examples:\n  mcm class check -f class.yaml -f secret.yaml\n  mcm class check -f class.yaml -f secret.yaml --live"
    )]
    Check(Box<ClassCheckOptions>),
    /// Write the capacity of VMs into MachineClasses
    ///
    /// Reads CPUs, memory, GPUs, architecture and the size of the root disk from the cloud of each class, with read-only calls and the
    /// Secrets in the files, and adds to its nodeTemplate what is missing there. Values in the file stay: those that differ from the
    /// cloud are reported. Other lines and comments stay.
    ///
    /// Exit code: 0 all classes are complete, 3 the capacity of a class is not known, 1 the command could not run.
    #[command(
        after_help = "Examples:\n  mcm class complete -f class.yaml -f secret.yaml\n  mcm class complete -f class.yaml -f secret.yaml --dry-run"
    )]
    Complete(Box<ClassCompleteOptions>),
}

/// Flags of `mcm class check`.
#[derive(Args, Clone, Debug)]
pub struct ClassCheckOptions {
    /// A file or folder with MachineClasses and their Secrets, or "-" for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// Also check the cloud, with the credentials in the Secrets
    #[arg(long)]
    live: bool,
    /// Format of the report
    #[arg(short = 'o', long, value_enum, value_name = "text|json", default_value_t = OutputFormat::Text, hide_possible_values = true)]
    output: OutputFormat,
    /// Permissions of Secrets of classes.
    #[command(flatten)]
    secrets: SecretOptions,
    /// Remote drivers.
    #[cfg(feature = "remote")]
    #[command(flatten)]
    remote: RemoteOptions,
}

/// Checks all classes of some files.
///
/// # Errors
/// A file cannot be read, or contains no class.
pub async fn check(options: ClassCheckOptions) -> Result<ClassReport, NotChecked> {
    let input = ClassFiles::read(&options.files)?;
    let catalogue = DriverFlags {
        secrets: &options.secrets,
        #[cfg(feature = "remote")]
        remote: &options.remote,
    }
    .open()?;
    let mut checked = Vec::new();
    for class in &input.classes {
        let (secret, missing) = input.secret_of(class);
        let is_complete = missing.is_empty();
        let mut lines: Vec<ClassFinding> = missing.into_iter().map(|line| input::missing(line, options.live)).collect();
        lines.extend(input.unused(class));
        lines.extend(findings(&catalogue, class, is_complete.then_some(&secret)).await);
        if options.live && lines.iter().all(|line| line.verdict != ClassFindingVerdict::Error) {
            lines.extend(look(&catalogue, class, &secret).await);
        }
        checked.push(CheckedClass::new(class, lines));
    }
    Ok(ClassReport::new(&checked, options.output))
}

#[cfg(test)]
#[cfg(feature = "aws")]
mod tests {
    use super::*;
    use rstest::rstest;
    use {crate::cli::objects, serde_json::json};

    /// The report about the class of the template with a Secret.
    async fn checked(data: serde_json::Value) -> ClassReport {
        let folder = tempfile::tempdir().unwrap();
        let (class, secret) = (folder.path().join("class.yaml"), folder.path().join("secret.yaml"));
        std::fs::write(&class, include_str!("../../../../templates/aws/machine-class.yaml")).unwrap();
        let reference = objects::read(&class).unwrap().remove(0)["secretRef"].clone();
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": reference, "stringData": data });
        std::fs::write(&secret, object.to_string()).unwrap();
        let options = ClassCheckOptions {
            files: vec![class, secret],
            live: false,
            output: OutputFormat::Json,
            secrets: SecretOptions::default(),
            #[cfg(feature = "remote")]
            remote: RemoteOptions::default(),
        };
        check(options).await.unwrap()
    }

    #[rstest]
    #[case::good("AK", 16_384, None)]
    #[case::long_user_data("AK", 17_000, Some("userData has 17000 bytes"))]
    #[case::no_user_data("AK", 0, Some("has no userData"))]
    #[case::empty_key("", 1, Some("needs both of accessKeyID and secretAccessKey"))]
    #[tokio::test]
    async fn the_secret_of_a_class_is_checked_with_it(
        #[case] key: &str,
        #[case] size: usize,
        #[case] expected: Option<&str>,
    ) {
        let data = json!({ "accessKeyID": key, "secretAccessKey": "SK", "userData": "x".repeat(size) });
        let report = checked(data).await;
        assert_eq!(report.verdict().is_ok(), expected.is_none(), "{}", report.text);
        assert!(expected.is_none_or(|text| report.text.contains(text)), "{}", report.text);
    }
}
