//! Findings about a MachineClass.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::api::resource::Quantity};
use tokio::time::timeout;

use mcm_api::{
    machine::{ClassNodeTemplate, MachineClass},
    quantity::is_same_quantity,
};
use mcm_controllers::{machine::token, machine_class::secret_refs, object::authority};
use mcm_driver::{
    Code, Driver, DriverError, SecretData, VmCapacity,
    inspection::{ResourceFinding, ResourcePresence},
    spec::ClassProblems,
};
use mcm_driver_host::DriverCatalogue;

/// Time for the calls that read what a class needs in its cloud.
const LIMIT: Duration = Duration::from_secs(120);

/// A finding about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFinding {
    pub verdict: ClassFindingVerdict,
    pub path: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassFindingVerdict {
    /// No VM can be created.
    Error,
    /// It could not be checked.
    Unknown,
    /// It is harmless, and perhaps not what was meant.
    Warning,
    /// Gardener's driver does something else.
    Difference,
    /// The cloud has it.
    Good,
}

impl ClassFindingVerdict {
    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Difference => "differs",
            Self::Good => "ok",
        }
    }
}

impl ClassFinding {
    pub fn new(verdict: ClassFindingVerdict, path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, path: path.into(), text: text.into() }
    }
}

/// The data of a Secret in a file, which may be written in two ways.
pub fn secret_data(secret: Secret) -> SecretData {
    let text = secret.string_data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
    SecretData(secret.data.unwrap_or_default().into_iter().map(|(key, data)| (key, data.0)).chain(text).collect())
}

/// Findings about a class without calls of its cloud. The data of its Secrets are `None` if they are not complete.
pub async fn findings(
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
        lines.extend(missing_user_data(class, secret, &lines));
    }
    lines
}

const USER_DATA: &str = "userData";

/// None of the Secrets that a class names has user data. Machines of the provider for Cluster API have Secrets with theirs.
fn missing_user_data(class: &MachineClass, secret: &SecretData, known: &[ClassFinding]) -> Option<ClassFinding> {
    let is_of_provider = authority::is_of_provider(&class.metadata);
    let is_named = known.iter().any(|line| line.text.contains(USER_DATA));
    let has_secrets = secret_refs(class).next().is_some();
    let is_missing = has_secrets && !secret.0.contains_key(USER_DATA) && !is_of_provider && !is_named;
    let text = format!("no Secret of the class has the key {USER_DATA}: no VM is created");
    is_missing.then(|| ClassFinding::new(ClassFindingVerdict::Error, "secretRef", text))
}

/// Findings about the Secrets, with the user data that machines get: with a token, and with the shortest and the longest name.
fn secret_lines(secret: &SecretData, problems: impl Fn(&SecretData) -> ClassProblems) -> Vec<ClassFinding> {
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
pub async fn look(catalogue: &DriverCatalogue, class: &MachineClass, secret: &SecretData) -> Vec<ClassFinding> {
    let Ok(driver) = catalogue.get(class) else { return Vec::new() };
    let found = timeout(LIMIT, driver.inspect(class, secret)).await.unwrap_or_else(|_| Err(unanswered()));
    let mut findings = resource_findings(found);
    findings.extend(capacity_findings(&*driver, class, secret).await);
    findings
}

/// The error of a cloud that does not answer.
fn unanswered() -> DriverError {
    let message = format!("the cloud did not answer within {} s", LIMIT.as_secs());
    DriverError::new(Code::DeadlineExceeded, message)
}

/// Findings about the `nodeTemplate` of a class, if its driver reads the capacity of VMs.
async fn capacity_findings(driver: &dyn Driver, class: &MachineClass, secret: &SecretData) -> Vec<ClassFinding> {
    let Some(template) = class.node_template.as_ref().filter(|_| driver.capacity_key(class).is_some()) else {
        return Vec::new();
    };
    match timeout(LIMIT, driver.capacity(class, secret)).await.unwrap_or_else(|_| Err(unanswered())) {
        Ok(capacity) => capacity_differences(template, &capacity),
        Err(error) => {
            vec![ClassFinding::new(ClassFindingVerdict::Unknown, "nodeTemplate.capacity", error.message)]
        }
    }
}

/// The values of a `nodeTemplate` that are not those of the cloud. The autoscaler counts with them.
fn capacity_differences(template: &ClassNodeTemplate, capacity: &VmCapacity) -> Vec<ClassFinding> {
    let warning = |path: String, typed: &str, reported: &str| {
        let text = format!("{typed} in the class, {reported} in the cloud for {}", capacity.instance_type);
        ClassFinding::new(ClassFindingVerdict::Warning, path, text)
    };
    let reported = capacity.class_resources();
    let resources = template.capacity.iter().filter_map(|(name, typed)| {
        let Quantity(amount) = reported.get(name).filter(|amount| !is_same_quantity(amount, typed))?;
        Some(warning(format!("nodeTemplate.capacity.{name}"), &typed.0, amount))
    });
    let architecture = template.architecture.as_deref().zip(capacity.architecture);
    let architecture = architecture.filter(|(typed, reported)| typed != reported);
    let architecture =
        architecture.map(|(typed, reported)| warning("nodeTemplate.architecture".to_owned(), typed, reported));
    resources.chain(architecture).collect()
}

fn resource_findings(found: Result<Vec<ResourceFinding>, DriverError>) -> Vec<ClassFinding> {
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
    use serde_json::{Value, json};

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

    #[rstest]
    #[case::without_it(json!({ "secretRef": { "name": "s" } }), &[], true)]
    #[case::with_it(json!({ "secretRef": { "name": "s" } }), &["userData"], false)]
    #[case::of_the_provider(json!({ "secretRef": { "name": "s" }, "metadata": { "labels": { (mcm_api::labels::POOL): "p" } } }), &[], false)]
    #[case::without_a_secret(json!({}), &[], false)]
    fn missing_user_data_are_an_error(#[case] more: Value, #[case] keys: &[&str], #[case] is_error: bool) {
        let mut class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {},
            "provider": "p", "providerSpec": {},
        });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let class = serde_json::from_value(class).unwrap();
        let secret = SecretData(keys.iter().map(|key| ((*key).to_owned(), vec![1])).collect());
        let found = missing_user_data(&class, &secret, &[]);
        assert_eq!(found.is_some_and(|line| line.verdict == ClassFindingVerdict::Error), is_error);
        let named =
            [ClassFinding::new(ClassFindingVerdict::Error, "Secret", "the secret of the class has no userData")];
        assert_eq!(missing_user_data(&class, &secret, &named), None);
    }

    #[test]
    fn a_typed_number_that_differs_from_the_cloud_is_a_warning() {
        let template = json!({
            "capacity": {"cpu": "2", "gpu": "0", "memory": "16384Mi", "ephemeral-storage": "40Gi"}, "architecture": "amd64",
            "instanceType": "m", "region": "r", "zone": "z",
        });
        let capacity = VmCapacity {
            instance_type: "m5.xlarge".to_owned(),
            cpus: 4,
            memory_mib: 16384,
            architecture: Some("arm64"),
            ..VmCapacity::default()
        };
        let found = capacity_differences(&serde_json::from_value(template).unwrap(), &capacity);
        let expected = [
            ("nodeTemplate.capacity.cpu", "2 in the class, 4 in the cloud for m5.xlarge"),
            ("nodeTemplate.architecture", "amd64 in the class, arm64 in the cloud for m5.xlarge"),
        ];
        assert_eq!(found, expected.map(|(path, text)| ClassFinding::new(ClassFindingVerdict::Warning, path, text)));
    }

    #[test]
    fn other_problems_of_a_secret_are_named_once() {
        let secret = SecretData([("userData".to_owned(), b"<<MACHINE_NAME>>".to_vec())].into());
        let texts: Vec<String> = secret_lines(&secret, problems).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["there is no token"]);
    }
}
