//! The cloud of a class, which is asked by calls that only read.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::answer::{BlockerSeverity, PlanBlocker};
use crate::{
    class::{ClassFindingVerdict, look, secret_data},
    error::error_line,
    read_only::ReadOnly,
};
use mcm_api::machine::{MachineClass, SecretRef};
use mcm_controllers::machine_class::login_data;
use mcm_driver::SecretData;
use mcm_runtime::{dated::DatedObject, objects::read};

/// Obstacles of new VMs that the cloud of a class shows, with the credentials in its Secrets.
pub async fn obstacles(cell: &ReadOnly, name: &str, class: &MachineClass) -> Vec<PlanBlocker> {
    let found = |severity, text: String| PlanBlocker {
        wait_kind: String::new(),
        severity,
        subject: format!("MachineClass/{name}"),
        text,
        remedies: Vec::new(),
        is_now: false,
    };
    let not_asked = |error: &anyhow::Error| {
        vec![found(BlockerSeverity::Delays, format!("the cloud of class {name} was not asked: {}", error_line(error)))]
    };
    if let Err(error) = cell.settings.drivers.get(class) {
        return not_asked(&error.into());
    }
    let secret = match secret_of(cell, class).await {
        Ok(secret) => secret,
        Err(error) => return not_asked(&error),
    };
    let lines = look(&cell.settings.drivers, class, &secret).await;
    let obstacle = |line: crate::class::ClassFinding| {
        let text = format!("the cloud of class {name}: {}: {}", line.path, line.text);
        match line.verdict {
            ClassFindingVerdict::Error => Some(found(BlockerSeverity::Blocks, text)),
            ClassFindingVerdict::Unknown | ClassFindingVerdict::Warning => Some(found(BlockerSeverity::Delays, text)),
            ClassFindingVerdict::Good | ClassFindingVerdict::Difference => None,
        }
    };
    lines.into_iter().filter_map(obstacle).collect()
}

/// The data of its Secrets, as its driver gets them.
async fn secret_of(cell: &ReadOnly, class: &MachineClass) -> Result<SecretData> {
    let other = data_of(cell, class.secret_ref.as_ref()).await?;
    Ok(login_data(other, data_of(cell, class.credentials_secret_ref.as_ref()).await?))
}

/// The data of one Secret. Only Secrets in the namespace of the class are read.
async fn data_of(cell: &ReadOnly, reference: Option<&SecretRef>) -> Result<Option<SecretData>> {
    let Some(SecretRef { name, namespace }) = reference.filter(|one| !one.name.is_empty()) else { return Ok(None) };
    if !namespace.is_empty() && *namespace != cell.namespace {
        bail!("Secret {namespace}/{name} is in another namespace than the MachineClass");
    }
    let api: Api<DatedObject<Secret>> = Api::namespaced(cell.control.clone(), &cell.namespace);
    let secret = read(&api, name).await.with_context(|| format!("read Secret {}/{name}", cell.namespace))?;
    let secret = secret.with_context(|| format!("Secret {}/{name} does not exist", cell.namespace))?;
    Ok(Some(secret_data(secret)))
}
