//! The cloud of a class, which is asked by calls that only read.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::answer::{Blocker, Severity};
use crate::{
    api::machine::MachineClass,
    cli::{
        class::{Verdict, look},
        objects,
    },
    controllers::machine_class::secret_refs,
    driver::SecretData,
    process::ReadOnly,
};

/// Obstacles of new VMs that the cloud of a class shows, with the credentials in its Secrets.
pub(super) async fn obstacles(cell: &ReadOnly, name: &str, class: &MachineClass) -> Vec<Blocker> {
    let found = |severity, text: String| Blocker {
        wait_kind: String::new(),
        severity,
        subject: format!("MachineClass/{name}"),
        text,
        remedies: Vec::new(),
    };
    let not_asked = |error: &anyhow::Error| {
        vec![found(Severity::Delays, format!("the cloud of class {name} was not asked: {error:#}"))]
    };
    if let Err(error) = cell.settings.drivers.get(class) {
        return not_asked(&error.into());
    }
    let secret = match secret_of(cell, class).await {
        Ok(secret) => secret,
        Err(error) => return not_asked(&error),
    };
    let lines = look(&cell.settings.drivers, class, &secret).await;
    let obstacle = |line: crate::cli::class::Line| {
        let text = format!("the cloud of class {name}: {}: {}", line.path, line.text);
        match line.verdict {
            Verdict::Error => Some(found(Severity::Blocks, text)),
            Verdict::Unknown | Verdict::Warning => Some(found(Severity::Delays, text)),
            Verdict::Good | Verdict::Difference => None,
        }
    };
    lines.into_iter().filter_map(obstacle).collect()
}

/// The data of its Secrets, as its driver gets them.
async fn secret_of(cell: &ReadOnly, class: &MachineClass) -> Result<SecretData> {
    let mut merged = SecretData::default();
    for reference in secret_refs(class).filter(|reference| !reference.name.is_empty()) {
        let namespace = if reference.namespace.is_empty() { &cell.namespace } else { &reference.namespace };
        let api: Api<Secret> = Api::namespaced(cell.control.clone(), namespace);
        let secret = api.get(&reference.name).await;
        let secret = secret.with_context(|| format!("read Secret {namespace}/{}", reference.name))?;
        merged.0.extend(objects::data_of(secret).0);
    }
    Ok(merged)
}
