//! What must be so before anything is touched. Unknown is not good enough.

use serde_json::Value;

use super::{
    object::{Kind, Object},
    snapshot::{Member, Snapshot, deployment_kind, machine_kind, set_kind},
    swap, swap_checks, to_capi, to_native,
    verdicts::{
        Check, OF_MACHINE, Verdict, cluster, machine_is_settled, no_orphans, no_rollout, nobody_paused,
        node_is_its_own, of_deployment, result, settled, vm_is_claimed_once, vm_is_found,
    },
    way::Way,
};
use crate::capi::{
    conversion::Conversion,
    types::{INFRASTRUCTURE_GROUP, Side, names},
};

/// All checks for a way.
pub fn checks(s: &Snapshot, way: Way) -> Vec<Check> {
    let (from, to) = (way.from(), way.to());
    let Some(deployment) = s.deployment_of(from) else {
        let id = format!("{} {}", deployment_kind(from), s.deployment);
        return vec![of_deployment("deployment", Err(format!("{id} does not exist")))];
    };
    let members = s.members_of(from);
    if way.keeps_core() {
        return swap_checks::checks(s, way, deployment, &members);
    }
    let mut all = vec![
        of_deployment("deployment", settled(deployment)),
        of_deployment("cluster", cluster(s, to)),
        of_deployment("pause", nobody_paused(s, from)),
        of_deployment("rollout", no_rollout(s, from, deployment, &members)),
        of_deployment("names", names_are_free(s, way, &members)),
        of_deployment("health checks", health_checks(s, to)),
        of_deployment("orphans", no_orphans(s, &members)),
    ];
    all.extend(conversion(s, way));
    for member in &members {
        let of_machine = |check, verdict| result(member.name, check, verdict);
        all.push(of_machine(OF_MACHINE[0], machine_is_settled(member, from)));
        all.push(of_machine(OF_MACHINE[1], node_is_its_own(member)));
        all.push(of_machine(OF_MACHINE[2], vm_is_found(s, member)));
        all.push(of_machine(OF_MACHINE[3], vm_is_claimed_once(s, member)));
    }
    all
}

fn names_are_free(s: &Snapshot, way: Way, members: &[Member<'_>]) -> Verdict {
    let (from, to) = (way.from(), way.to());
    let set = s.set_of(from).and_then(|set| s.find(set_kind(to), set.name()));
    let machines = members.iter().flat_map(|member| match to {
        Side::ClusterApi | Side::OtherProvider => [member.infra, s.find(machine_kind(to), member.name)],
        Side::MachineController => [None, None],
    });
    let mut taken = s.deployment_of(to).into_iter().chain(set).chain(machines.flatten());
    match taken.find(|object| !object.is_of_migration(&s.deployment)) {
        Some(object) => Err(format!("{} exists: rename or delete it", object.id())),
        None => Ok("the names are free on the other side".to_owned()),
    }
}

fn health_checks(s: &Snapshot, to: Side) -> Verdict {
    if to != Side::MachineController {
        return Ok("none natively".to_owned());
    }
    let own: Vec<&str> =
        s.members_of(Side::ClusterApi).iter().filter_map(|member| member.machine).map(Object::name).collect();
    for check in to_native::health_checks(s) {
        let mut others = s.all(Kind::CapiMachine).filter(|machine| !own.contains(&machine.name()));
        if let Some(other) = others.find(|machine| to_native::is_selected(check, machine)) {
            return Err(format!("{} selects {}, too: write one for this deployment alone", check.id(), other.id()));
        }
    }
    Ok("they concern this deployment alone".to_owned())
}

/// Every refusal is a failed check, with its path.
fn conversion(s: &Snapshot, way: Way) -> Vec<Check> {
    let Conversion { objects, refusals, .. } = converted(s, way);
    let mut all: Vec<Check> =
        refusals.iter().map(|refusal| of_deployment("conversion", Err(refusal.to_string()))).collect();
    if all.is_empty() {
        all.push(of_deployment("conversion", Ok("every field has a counterpart or is noted".to_owned())));
        all.push(of_deployment("bootstrap", boots(s, way, &objects)));
        let taken = objects.iter().filter_map(|object| {
            let is_own_check = |kind: &Kind| matches!(kind, Kind::CapiDeployment | Kind::Deployment);
            let kind = Kind::of(object).filter(|kind| !is_own_check(kind) && s.is_taken(*kind, object))?;
            Some(format!("{kind} {} exists and is another one", object["metadata"]["name"].as_str()?))
        });
        all.extend(taken.map(|text| of_deployment("conversion", Err(text))));
    }
    all
}

/// What the other side needs.
pub fn converted(s: &Snapshot, way: Way) -> Conversion {
    match way {
        Way::FromNative => to_capi::converted(s),
        Way::ToNative => to_native::converted(s),
        Way::FromOther => swap::class_made(s),
        Way::ToOther => swap::template_made(s),
    }
}

/// Later machines need data to boot with, and the provider its own template.
fn boots(s: &Snapshot, way: Way, objects: &[Value]) -> Verdict {
    if way == Way::ToNative {
        let secret = s.deployment_of(way.from()).map(|one| one.text("/spec/template/spec/bootstrap/dataSecretName"));
        let secret = secret.unwrap_or_default();
        return match s.find(Kind::Secret, secret) {
            Some(_) => Ok(format!("from Secret {secret}")),
            None => Err(format!("Secret {secret} does not exist")),
        };
    }
    let deployment = objects.iter().find(|object| Kind::of(object) == Some(Kind::CapiDeployment));
    let spec = deployment.map(|one| one["spec"]["template"]["spec"].clone()).unwrap_or_default();
    let reference = &spec["infrastructureRef"];
    if reference["kind"] != "MCMMachineTemplate" || reference["apiGroup"] != INFRASTRUCTURE_GROUP {
        return Err(format!("its template is a {} of another provider", reference["kind"]));
    }
    let name = spec["bootstrap"]["dataSecretName"].as_str().unwrap_or_default();
    let is_made = |object: &&Value| Kind::of(object) == Some(Kind::Secret) && object["metadata"]["name"] == name;
    if objects.iter().any(|object| is_made(&object)) || s.find(Kind::Secret, name).is_some() {
        return Ok(format!("from Secret {name}"));
    }
    Err(format!("create Secret {name} of type {} with the bootstrap data as value", names::SECRET_TYPE))
}
