//! Checks classes before they are applied.

mod error;
mod input;
mod report;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};
use tokio::time::timeout;

use super::{flags::SecretOptions, format::OutputFormat};
use crate::{
    api::machine::MachineClass,
    process::DriverSources,
    simulated_cloud::{CloudApi, CloudSimulator, SimulationSettings},
};
use input::ClassFiles;
use mcm_controllers::machine::token;
use mcm_driver::{Code, DriverError, DriverGuards, SecretData, inspection::ResourcePresence, spec::ClassProblems};
use mcm_driver_host::DriverCatalogue;
use report::CheckedClass;

#[cfg(feature = "remote")]
use super::flags::RemoteOptions;
pub use error::NotChecked;
pub use report::ClassReport;
pub(super) use report::{ClassFinding, ClassFindingVerdict};

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

/// Looking into a cloud may take so long.
const LIMIT: Duration = Duration::from_secs(120);

/// Checks all classes of some files.
///
/// # Errors
/// A file cannot be read, or contains no class.
pub async fn check(options: ClassCheckOptions) -> Result<ClassReport, NotChecked> {
    let input = ClassFiles::read(&options.files)?;
    let catalogue = drivers(&options)?;
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

fn drivers(options: &ClassCheckOptions) -> Result<DriverCatalogue, NotChecked> {
    #[cfg(feature = "remote")]
    let remote = options.remote.endpoints();
    #[cfg(feature = "remote")]
    if let Some(exposed) = remote.iter().find(|one| one.address.is_exposed() && !options.remote.driver_insecure) {
        return Err(NotChecked::Exposed(exposed.address.to_string()));
    }
    // Nothing is created in it.
    let simulated_cloud = || Ok(Arc::new(CloudSimulator::new(0, SimulationSettings::default())) as Arc<dyn CloudApi>);
    let sources = DriverSources {
        simulated_cloud: Some(&simulated_cloud),
        secrets: &options.secrets.policy(),
        #[cfg(feature = "remote")]
        remote: &remote,
    };
    sources.open(None, &DriverGuards::unobserved()).map_err(|error| NotChecked::Driver(error.to_string()))
}

/// Findings about a class without calls of its cloud. The data of its Secrets are `None` if they are not complete.
pub(super) async fn findings(
    catalogue: &DriverCatalogue,
    class: &MachineClass,
    secret: Option<&SecretData>,
) -> Vec<ClassFinding> {
    let flaws =
        class.flaws().into_iter().map(|flaw| ClassFinding::new(ClassFindingVerdict::Error, flaw.path, flaw.text));
    let mut lines: Vec<ClassFinding> = flaws.collect();
    lines.extend(check_class(catalogue, class).await);
    if let Some(secret) = secret
        && let Ok(driver) = catalogue.get(class).map_err(drop)
    {
        lines.extend(secret_lines(secret, |secret| driver.secret_problems(class, secret)));
    }
    lines
}

/// Findings about the Secrets, with the user data that machines get: with a token, and with the shortest and the longest name.
fn secret_lines(secret: &SecretData, problems: impl Fn(&SecretData) -> ClassProblems) -> Vec<ClassFinding> {
    const USER_DATA: &str = "userData";
    let Some(user_data) = secret.0.get(USER_DATA) else { return lines_of(&problems(secret)) };
    let [mut lines, others] = token::extremes_of(user_data).map(|filled| {
        let mut secret = secret.clone();
        secret.0.insert(USER_DATA.to_owned(), filled);
        lines_of(&problems(&secret))
    });
    // Sizes in texts differ.
    let words = |line: &ClassFinding| (line.path.clone(), line.text.replace(|c: char| c.is_ascii_digit(), ""));
    let known: Vec<_> = lines.iter().map(words).collect();
    for line in others.into_iter().filter(|line| !known.contains(&words(line))) {
        let text = format!("with machine names of {} characters: {}", token::LONGEST_NAME, line.text);
        lines.push(ClassFinding::new(ClassFindingVerdict::Warning, line.path, text));
    }
    lines
}

/// Findings of the driver about the fields.
async fn check_class(catalogue: &DriverCatalogue, class: &MachineClass) -> Vec<ClassFinding> {
    let driver = match catalogue.get(class) {
        Ok(driver) => driver,
        Err(error) => return vec![ClassFinding::new(ClassFindingVerdict::Error, "provider", error.to_string())],
    };
    match driver.problems(class).await {
        Ok(problems) => lines_of(&problems),
        Err(error) => vec![ClassFinding::new(ClassFindingVerdict::Unknown, "provider", error.message)],
    }
}

fn lines_of(ClassProblems { errors, warnings, differences }: &ClassProblems) -> Vec<ClassFinding> {
    let kinds = [
        (ClassFindingVerdict::Error, errors),
        (ClassFindingVerdict::Warning, warnings),
        (ClassFindingVerdict::Difference, differences),
    ];
    let lines = kinds.into_iter().flat_map(|(verdict, all)| {
        all.iter().map(move |problem| ClassFinding::new(verdict, problem.path.clone(), problem.text.clone()))
    });
    lines.collect()
}

/// Findings in the cloud.
pub(super) async fn look(catalogue: &DriverCatalogue, class: &MachineClass, secret: &SecretData) -> Vec<ClassFinding> {
    let Ok(driver) = catalogue.get(class) else { return Vec::new() };
    let found = timeout(LIMIT, driver.inspect(class, secret)).await.unwrap_or_else(|_| {
        let message = format!("the cloud did not answer within {} s", LIMIT.as_secs());
        Err(DriverError::new(Code::DeadlineExceeded, message))
    });
    match found {
        Err(error) => {
            let verdict = if error.code == Code::InvalidArgument {
                ClassFindingVerdict::Error
            } else {
                ClassFindingVerdict::Unknown
            };
            vec![ClassFinding::new(verdict, "cloud", error.message)]
        }
        Ok(findings) => findings
            .into_iter()
            .map(|finding| {
                let verdict = match finding.presence {
                    ResourcePresence::Present => ClassFindingVerdict::Good,
                    ResourcePresence::Missing => ClassFindingVerdict::Error,
                    ResourcePresence::Unknown => ClassFindingVerdict::Unknown,
                };
                ClassFinding::new(verdict, finding.path, finding.text)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    #[cfg(feature = "aws")]
    use {crate::cli::objects, serde_json::json};

    /// The report about the class of the template with a Secret.
    #[cfg(feature = "aws")]
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

    #[cfg(feature = "aws")]
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

    /// A driver whose cloud takes 100 bytes of user data.
    fn problems(secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let size = secret.0.get("userData").map_or(0, Vec::len);
        if size > 100 {
            problems.error("Secret", format!("userData has {size} bytes, and the cloud takes 100"));
        }
        if !secret.0.contains_key("token") {
            problems.error("Secret", "there is no token");
        }
        problems
    }

    #[rstest]
    #[case::short("x".repeat(100), None)]
    #[case::long("x".repeat(101), Some((ClassFindingVerdict::Error, "userData has 101 bytes")))]
    #[case::with_a_token(format!("<<BOOTSTRAP_TOKEN>>{}", "x".repeat(81)), Some((ClassFindingVerdict::Error, "userData has 104 bytes")))]
    #[case::with_an_escaped_token(format!("%3C%3CBOOTSTRAP_TOKEN%3E%3E{}", "x".repeat(77)), None)]
    #[case::with_a_long_name(
        format!("<<MACHINE_NAME>>{}", "x".repeat(80)),
        Some((ClassFindingVerdict::Warning, "with machine names of 63 characters: userData has 143 bytes"))
    )]
    #[case::with_any_name(format!("<<MACHINE_NAME>>{}", "x".repeat(100)), Some((ClassFindingVerdict::Error, "userData has 101 bytes")))]
    fn user_data_are_measured_as_machines_get_them(
        #[case] text: String,
        #[case] expected: Option<(ClassFindingVerdict, &str)>,
    ) {
        let secret = SecretData([("userData".to_owned(), text.into_bytes()), ("token".to_owned(), vec![1])].into());
        let lines = secret_lines(&secret, problems);
        match expected {
            None => assert_eq!(lines, []),
            Some((verdict, start)) => {
                assert_eq!((lines.len(), lines[0].verdict), (1, verdict), "{lines:?}");
                assert!(lines[0].text.starts_with(start), "{lines:?}");
            }
        }
    }

    #[test]
    fn other_problems_of_a_secret_are_named_once() {
        let secret = SecretData([("userData".to_owned(), b"<<MACHINE_NAME>>".to_vec())].into());
        let texts: Vec<String> = secret_lines(&secret, problems).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["there is no token"]);
    }
}
