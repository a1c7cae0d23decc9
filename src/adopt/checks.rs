//! Preconditions of a migration. An unknown state does not satisfy them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{
    Kind, MachineObjects, MigrationDirection, MigrationUnit, Snapshot, UnstructuredObject,
    hold::{health_checks, is_selected},
    pool_checks,
    snapshot::{deployment_kind, machine_kind, set_kind},
    swap, swap_checks, to_capi, to_native,
    verdicts::{
        CheckVerdict, MigrationCheck, OF_MACHINE, cluster, machine_is_settled, names_are_free, no_orphans, no_rollout,
        nobody_paused, node_is_its_own, of_whole, result, settled, vm_is_claimed_once, vm_is_found,
    },
};
use mcm_api::selector::Selector;
use mcm_conversion::{
    ConversionResult,
    types::{INFRASTRUCTURE_GROUP, MigrationSide, names},
};

/// All checks for a direction.
pub fn checks(s: &Snapshot, way: MigrationDirection) -> Vec<MigrationCheck> {
    let (from, to) = (way.from(), way.to());
    let what = if s.unit.is_lone() { "machine" } else { "deployment" };
    let Some(root) = s.root_of(from) else { return vec![of_whole(what, Err(missing(s, from)))] };
    if s.unit.is_lone() && way.keeps_core() {
        let text = "between infrastructure providers only whole deployments are migrated";
        return vec![of_whole("provider", Err(text.to_owned()))];
    }
    let members = s.members_of(from);
    let paused = nobody_paused(s, way, &members);
    let mut all = vec![of_whole(what, settled(root)), of_whole("cluster", cluster(s, to)), of_whole("pause", paused)];
    all.extend(match &s.unit {
        MigrationUnit::Pool(_) => pool_checks::checks(s, way, root, &members),
        _ if way.keeps_core() => swap_checks::checks(s, way, root, &members),
        _ => between_controllers(s, way, root, &members),
    });
    for member in &members {
        let verdicts = [
            machine_is_settled(s, member, from),
            node_is_its_own(member),
            vm_is_found(s, member),
            vm_is_claimed_once(s, member),
        ];
        all.extend(OF_MACHINE.into_iter().zip(verdicts).map(|(check, verdict)| result(member.name, check, verdict)));
    }
    all
}

fn missing(s: &Snapshot, from: MigrationSide) -> String {
    if s.unit.is_lone() {
        return format!(
            "there is no {} {} without an owner; a Machine of a MachineSet is migrated with its MachineDeployment",
            machine_kind(from),
            s.name()
        );
    }
    let is_of_pool = s.unit.is_pool() && from == MigrationSide::OtherProvider;
    let kind = if is_of_pool { Kind::MachinePool } else { deployment_kind(from) };
    format!("{kind} {} does not exist", s.name())
}

/// The checks of a migration between core and the native controllers.
fn between_controllers(
    s: &Snapshot,
    way: MigrationDirection,
    root: &UnstructuredObject,
    members: &[MachineObjects<'_>],
) -> Vec<MigrationCheck> {
    let made = converted(s, way);
    let mut all = match s.unit.is_lone() {
        true => {
            vec![of_whole("sets", no_set_adopts_it(s, way, &made)), of_whole("health checks", nobody_repairs_it(s))]
        }
        false => vec![
            of_whole("rollout", no_rollout(s, way.from(), root, members)),
            of_whole("health checks", select_no_others(s, way)),
        ],
    };
    all.push(of_whole("names", names_are_free(s, way, members)));
    all.push(of_whole("orphans", no_orphans(s, members)));
    all.extend(conversion(s, way, made));
    all
}

/// Health checks are removed, so none may select machines of another deployment.
fn select_no_others(s: &Snapshot, way: MigrationDirection) -> CheckVerdict {
    if way == MigrationDirection::FromNative {
        return Ok("MCM has none".to_owned());
    }
    let members = s.members_of(MigrationSide::ClusterApi);
    let own: Vec<&str> = members.iter().filter_map(|member| Some(member.machine?.name())).collect();
    for check in health_checks(s) {
        let mut others = s.all(Kind::CapiMachine).filter(|machine| !own.contains(&machine.name()));
        if let Some(other) = others.find(|machine| is_selected(check, machine)) {
            return Err(format!("{} also selects {}: create one for this deployment only", check.id(), other.id()));
        }
    }
    Ok("they select machines of this deployment only".to_owned())
}

/// A set adopts a Machine without a controller that it selects.
fn no_set_adopts_it(s: &Snapshot, way: MigrationDirection, made: &ConversionResult) -> CheckVerdict {
    let now = s.lone_of(way.from()).map(|machine| machine.at("/metadata/labels"));
    let later = made.objects.iter().find(|object| Kind::from_value(object) == Some(machine_kind(way.to())));
    let later = later.map(|machine| machine["metadata"]["labels"].clone());
    for (side, labels) in [(way.from(), now), (way.to(), later)] {
        let labels: Option<BTreeMap<String, String>> = serde_json::from_value(labels.unwrap_or_default()).ok();
        for set in s.all(set_kind(side)) {
            let selector = serde_json::from_value::<Option<LabelSelector>>(set.at("/spec/selector"));
            let selector = selector.ok().and_then(|selector| Selector::parse(selector.as_ref()).ok());
            match selector {
                None => return Err(format!("the selector of {} cannot be read", set.id())),
                Some(selector) if selector.matches(labels.as_ref()) => {
                    return Err(format!("{} selects it and would adopt it: change its labels", set.id()));
                }
                Some(_) => {}
            }
        }
    }
    Ok("no set selects it".to_owned())
}

/// A machine without a set is never replaced, but a health check may request a repair.
fn nobody_repairs_it(s: &Snapshot) -> CheckVerdict {
    let Some(machine) = s.lone_of(MigrationSide::ClusterApi) else { return Ok("MCM has none".to_owned()) };
    let repairs = |check: &&UnstructuredObject| {
        !check.at("/spec/remediation/templateRef").is_null() && is_selected(check, machine)
    };
    match s.all(Kind::HealthCheck).find(repairs) {
        Some(check) => Err(format!(
            "{} has another controller repair it (remediation.templateRef), which MCM cannot do: change its selector",
            check.id()
        )),
        None => Ok("no health check replaces it on either side".to_owned()),
    }
}

/// Every refusal is a failed check, with its path.
fn conversion(s: &Snapshot, way: MigrationDirection, made: ConversionResult) -> Vec<MigrationCheck> {
    let ConversionResult { objects, refusals, .. } = made;
    let mut all: Vec<MigrationCheck> =
        refusals.iter().map(|refusal| of_whole("conversion", Err(refusal.to_string()))).collect();
    if all.is_empty() {
        all.push(of_whole("conversion", Ok("every field has a counterpart or is noted".to_owned())));
        all.push(of_whole("bootstrap", boots(s, way, &objects)));
        let taken = objects.iter().filter_map(|object| {
            let kind = Kind::from_value(object).filter(|kind| !has_own_check(*kind) && s.is_taken(*kind, object))?;
            Some(format!(
                "{kind} {} exists with other content: rename or delete it",
                object["metadata"]["name"].as_str()?
            ))
        });
        all.extend(taken.map(|text| of_whole("conversion", Err(text))));
    }
    all
}

const fn has_own_check(kind: Kind) -> bool {
    matches!(kind, Kind::CapiDeployment | Kind::CapiMachine | Kind::InfraMachine | Kind::Deployment | Kind::Machine)
}

/// The objects of the other side.
pub fn converted(s: &Snapshot, way: MigrationDirection) -> ConversionResult {
    match way {
        MigrationDirection::FromNative => to_capi::converted(s),
        MigrationDirection::ToNative => to_native::converted(s),
        MigrationDirection::FromStandIn => ConversionResult::default(),
        MigrationDirection::FromOther | MigrationDirection::ToOther => swap::converted(s, way),
    }
}

/// Later machines need bootstrap data, and the provider needs a template.
fn boots(s: &Snapshot, way: MigrationDirection, objects: &[Value]) -> CheckVerdict {
    let of_machine = s.unit.path_of_machine();
    if way == MigrationDirection::ToNative {
        let path = format!("{of_machine}/bootstrap/dataSecretName");
        let secret = s.root_of(way.from()).map(|root| root.text(&path)).unwrap_or_default();
        return match s.find(Kind::Secret, secret) {
            Some(_) => Ok(format!("from Secret {secret}")),
            None => Err(format!("Secret {secret} does not exist")),
        };
    }
    let kind = if s.unit.is_lone() { Kind::CapiMachine } else { Kind::CapiDeployment };
    let made = objects.iter().find(|object| Kind::from_value(object) == Some(kind));
    let spec = made.and_then(|one| one.pointer(of_machine)).cloned().unwrap_or_default();
    let reference = &spec["infrastructureRef"];
    let is_of_mcm = ["MCMMachineTemplate", "MCMMachine"].iter().any(|kind| reference["kind"] == *kind);
    if !is_of_mcm || reference["apiGroup"] != INFRASTRUCTURE_GROUP {
        return Err(format!("its template is a {} of another provider", reference["kind"]));
    }
    let name = spec["bootstrap"]["dataSecretName"].as_str().unwrap_or_default();
    let is_made = |object: &Value| Kind::from_value(object) == Some(Kind::Secret) && object["metadata"]["name"] == name;
    if objects.iter().any(is_made) || s.find(Kind::Secret, name).is_some() {
        return Ok(format!("from Secret {name}"));
    }
    Err(format!("create Secret {name} of type {} with the bootstrap data as value", names::SECRET_TYPE))
}
