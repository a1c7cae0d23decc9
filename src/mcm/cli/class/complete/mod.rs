//! Completes the `nodeTemplate` of MachineClasses in files with the capacity that their clouds report.

mod additions;
mod edit;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tokio::time::timeout;

use super::{
    drivers::DriverFlags,
    error::{NotChecked, NotCompleted},
    input::ClassFiles,
};
use crate::{
    api::machine::MachineClass,
    cli::{flags::SecretOptions, format::OutputFormat, objects},
};
use additions::ClassCompletion;
use edit::ClassDocuments;
use mcm_driver::VmCapacity;
use mcm_driver_host::DriverCatalogue;
use report::{CompletedClass, CompletionOutcome};

#[cfg(feature = "remote")]
use crate::cli::flags::RemoteOptions;
pub use report::CompletionReport;

/// Time for the calls that read a capacity.
const LIMIT: Duration = Duration::from_secs(120);

/// Flags of `mcm class complete`.
#[derive(Args, Clone, Debug)]
pub struct ClassCompleteOptions {
    /// A file with MachineClasses, which is changed, or with their Secrets; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// Print the changes, and write no file
    #[arg(long)]
    dry_run: bool,
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

/// Completes all classes of some files.
///
/// # Errors
/// A file cannot be read or written, or contains no class.
pub async fn complete(options: ClassCompleteOptions) -> Result<CompletionReport, NotCompleted> {
    if let Some(other) = options.files.iter().find(|path| !path.is_file()) {
        return Err(NotCompleted::NoFile(other.display().to_string()));
    }
    let input = ClassFiles::read(&options.files)?;
    let catalogue = DriverFlags {
        secrets: &options.secrets,
        #[cfg(feature = "remote")]
        remote: &options.remote,
    }
    .open()?;
    let mut report = Vec::new();
    for file in &options.files {
        let mut documents = ClassDocuments::split(&objects::read_text(file).map_err(NotChecked::from)?);
        let before = report.len();
        for class in &input.classes {
            let Some(place) = documents.place_of(class) else { continue };
            let outcome = match capacity(&catalogue, &input, class).await {
                Err(reason) => CompletionOutcome::Unknown(reason),
                Ok(capacity) => {
                    let completion = ClassCompletion::new(documents.object(place), &capacity);
                    match documents.add(place, &completion) {
                        Ok(()) => CompletionOutcome::Known(completion),
                        Err(problem) => CompletionOutcome::Unwritable { completion, problem },
                    }
                }
            };
            report.push(CompletedClass::new(class, file, outcome));
        }
        let is_changed = report.iter().skip(before).any(CompletedClass::is_changed);
        if is_changed && !options.dry_run {
            write(file, &documents.text())?;
        }
    }
    Ok(CompletionReport::new(&report, options.dry_run, options.output))
}

/// The capacity of a VM of a class, or the reason why it is not known.
async fn capacity(catalogue: &DriverCatalogue, input: &ClassFiles, class: &MachineClass) -> Result<VmCapacity, String> {
    let driver = catalogue.get(class).map_err(|error| error.to_string())?;
    let (secret, missing) = input.secret_of(class);
    if let Some(missing) = missing.first() {
        return Err(format!("Secret {missing} is in none of the files: add it with -f"));
    }
    let read = timeout(LIMIT, driver.capacity(class, &secret)).await;
    let read = read.map_err(|_| format!("the cloud did not answer within {} s", LIMIT.as_secs()))?;
    read.map_err(|error| error.to_string())
}

fn write(file: &Path, text: &str) -> Result<(), NotCompleted> {
    fs::write(file, text).map_err(|source| NotCompleted::Write { path: file.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: &str = "# Workers.\napiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: c}\n\
        provider: simulated\nproviderSpec:\n  instanceType: small # cheap\n  capacity: {cpu: 8, memory: 32Gi}\n";

    async fn completed(text: &str, dry_run: bool, output: OutputFormat) -> (CompletionReport, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("class.yaml");
        fs::write(&file, text).unwrap();
        let options = ClassCompleteOptions {
            files: vec![file.clone()],
            dry_run,
            output,
            secrets: SecretOptions::default(),
            #[cfg(feature = "remote")]
            remote: RemoteOptions::default(),
        };
        let report = complete(options).await.unwrap();
        (report, fs::read_to_string(&file).unwrap())
    }

    #[tokio::test]
    async fn a_class_gets_a_node_template_and_keeps_its_text() {
        let (report, text) = completed(CLASS, false, OutputFormat::Text).await;
        assert!(report.verdict().is_ok(), "{}", report.text);
        let expected = format!(
            "{CLASS}nodeTemplate:\n  capacity:\n    cpu: \"8\"\n    gpu: \"0\"\n    memory: \"32Gi\"\n  architecture: \"amd64\"\n  \
             instanceType: \"small\"\n  region: \"simulated\"\n  zone: \"simulated-a\"\n"
        );
        assert_eq!(text, expected);
        let (again, unchanged) = completed(&text, false, OutputFormat::Text).await;
        assert!(again.verdict().is_ok() && again.text.contains("is complete"), "{}", again.text);
        assert_eq!(unchanged, expected);
    }

    #[tokio::test]
    async fn a_dry_run_writes_nothing() {
        let (report, text) = completed(CLASS, true, OutputFormat::Text).await;
        assert!(report.text.contains("nodeTemplate.capacity.cpu"), "{}", report.text);
        assert_eq!(text, CLASS);
    }

    #[tokio::test]
    async fn typed_numbers_stay_and_differences_are_reported() {
        let typed = format!(
            "{CLASS}nodeTemplate:\n  capacity: {{cpu: 2, gpu: 0, memory: 32768Mi}} # mine\n  instanceType: small\n  region: simulated\n  \
             zone: simulated-a\n  architecture: amd64\n"
        );
        let (report, text) = completed(&typed, false, OutputFormat::Json).await;
        assert_eq!(text, typed);
        let document: serde_json::Value = serde_json::from_str(&report.text).unwrap();
        let expected = serde_json::json!([{"field": "nodeTemplate.capacity.cpu", "file": "2", "cloud": "8"}]);
        assert_eq!(document["classes"][0]["differs"], expected);
        assert_eq!(document["classes"][0]["added"], serde_json::json!({}));
        assert!(report.verdict().is_ok());
    }

    #[tokio::test]
    async fn a_class_whose_cloud_is_not_known_fails_the_command() {
        let foreign = CLASS.replace("provider: simulated", "provider: Nonesuch");
        let (report, text) = completed(&foreign, false, OutputFormat::Text).await;
        assert!(report.verdict().is_err(), "{}", report.text);
        assert!(report.text.contains("Nonesuch"), "{}", report.text);
        assert_eq!(text, foreign);
    }
}
