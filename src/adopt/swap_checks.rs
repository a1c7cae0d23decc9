//! Preconditions of a migration between infrastructure providers.

use super::{
    Kind, MachineObjects, MigrationDirection, Snapshot, UnstructuredObject, swap,
    verdicts::{CheckVerdict, MigrationCheck, names_are_free, no_orphans, no_rollout, of_whole},
};
use mcm_api::machine::MachineClass;
use mcm_conversion::{content_of, zone_of};

/// The checks of one of the two directions.
pub fn checks(
    s: &Snapshot,
    way: MigrationDirection,
    deployment: &UnstructuredObject,
    members: &[MachineObjects<'_>],
) -> Vec<MigrationCheck> {
    let mut all = vec![
        of_whole("rollout", no_rollout(s, way.from(), deployment, members)),
        of_whole("provider", provider(s, way, deployment)),
        of_whole("names", names_are_free(s, way, members)),
        of_whole("orphans", no_orphans(s, members)),
    ];
    all.extend(conversion(s, way, deployment));
    all
}

/// The template is of the provider that the machines are migrated from.
fn provider(s: &Snapshot, way: MigrationDirection, deployment: &UnstructuredObject) -> CheckVerdict {
    let reference = "/spec/template/spec/infrastructureRef";
    let (kind, name) = (deployment.text(&format!("{reference}/kind")), swap::template_name(s));
    // Includes the time in which the references change.
    let is_under_way = deployment.is_of_migration(s.name());
    let is_own = kind == Kind::InfraTemplate.resource().name;
    match way {
        MigrationDirection::ToOther if !is_own && !is_under_way => {
            Err(format!("its template is {kind} {name}, which is not of the provider mcm"))
        }
        MigrationDirection::ToOther => match swap::own_template(s) {
            Some(template) => Ok(format!("from {}", template.id())),
            None => Err(format!("MCMMachineTemplate {name} does not exist")),
        },
        _ if is_own && !is_under_way => {
            Err(format!("its template is {kind} {name}, which is already of the provider mcm"))
        }
        _ => match swap::other_template(s) {
            Some(template) => Ok(format!("from {}", template.id())),
            None => {
                Err(format!("its template {kind} {name} does not exist or is of a provider that mcm does not know"))
            }
        },
    }
}

/// Every refusal is a failed check, with its path.
pub fn conversion(s: &Snapshot, way: MigrationDirection, deployment: &UnstructuredObject) -> Vec<MigrationCheck> {
    let made = swap::converted(s, way);
    if !made.refusals.is_empty() {
        let refused = |refusal: &_| of_whole("conversion", Err(format!("{refusal}; or write the class yourself")));
        return made.refusals.iter().map(refused).collect();
    }
    let text = match made.objects.first() {
        Some(object) => {
            format!("{} {} is created", object["kind"].as_str().unwrap_or_default(), swap::template_name(s))
        }
        None => "class and template exist".to_owned(),
    };
    let mut all = vec![of_whole("conversion", Ok(text))];
    if way != MigrationDirection::ToOther {
        all.push(of_whole("class", class_fits(s, deployment)));
    }
    all
}

/// The provider mcm adopts a machine only into a class of its zone.
fn class_fits(s: &Snapshot, deployment: &UnstructuredObject) -> CheckVerdict {
    let Some(class) = swap::class(s) else {
        return Err(format!("MachineClass {} does not exist and cannot be created", swap::template_name(s)));
    };
    let name = class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let content = serde_json::from_value::<MachineClass>(class).map(|class| content_of(&class));
    let content = content.map_err(|_| format!("MachineClass {name} cannot be read"))?;
    let (wanted, zone) = (deployment.text("/spec/template/spec/failureDomain"), zone_of(Some(&content)));
    if !wanted.is_empty() && zone.as_deref() != Some(wanted) {
        return Err(format!("MachineClass {name} is not in failureDomain {wanted}: set its nodeTemplate.zone"));
    }
    Ok(name)
}
