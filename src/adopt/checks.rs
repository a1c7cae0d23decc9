//! Preconditions of a migration. An unknown state does not satisfy them.

use serde_json::Value;

use super::{
    lone,
    object::{Kind, UnstructuredObject},
    pool_checks,
    snapshot::{MachineObjects, Snapshot, deployment_kind, machine_kind, set_kind},
    swap, swap_checks, to_capi, to_native,
    verdicts::{
        CheckVerdict, MigrationCheck, OF_MACHINE, cluster, machine_is_settled, no_orphans, no_rollout, nobody_paused,
        node_is_its_own, of_whole, result, settled, vm_is_claimed_once, vm_is_found,
    },
    way::MigrationDirection,
};
use mcm_conversion::{
    ConversionResult,
    types::{INFRASTRUCTURE_GROUP, MigrationSide, names},
};

/// All checks for a direction.
pub fn checks(s: &Snapshot, way: MigrationDirection) -> Vec<MigrationCheck> {
    let (from, to) = (way.from(), way.to());
    let what = if s.unit.is_lone() { "machine" } else { "deployment" };
    let Some(root) = s.root_of(from) else { return vec![of_whole(what, Err(missing(s, from)))] };
    let members = s.members_of(from);
    if s.unit.is_pool() {
        return pool_checks::checks(s, way, root, &members);
    }
    if way.keeps_core() {
        return swap_checks::checks(s, way, root, &members);
    }
    let made = converted(s, way);
    let mut all = vec![
        of_whole(what, settled(root)),
        of_whole("cluster", cluster(s, to)),
        of_whole("pause", nobody_paused(s, from)),
    ];
    if s.unit.is_lone() {
        all.push(of_whole("sets", lone::no_set_adopts_it(s, way, &made)));
        all.push(of_whole("health checks", lone::nobody_repairs_it(s)));
    } else {
        all.push(of_whole("rollout", no_rollout(s, from, root, &members)));
        all.push(of_whole("health checks", health_checks(s, to)));
    }
    all.push(of_whole("names", names_are_free(s, way, &members)));
    all.push(of_whole("orphans", no_orphans(s, &members)));
    all.extend(conversion(s, way, made));
    for member in &members {
        let of_machine = |check, verdict| result(member.name, check, verdict);
        all.push(of_machine(OF_MACHINE[0], machine_is_settled(member, from)));
        all.push(of_machine(OF_MACHINE[1], node_is_its_own(member)));
        all.push(of_machine(OF_MACHINE[2], vm_is_found(s, member)));
        all.push(of_machine(OF_MACHINE[3], vm_is_claimed_once(s, member)));
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
    let kind = if s.unit.is_pool() && from == MigrationSide::OtherProvider {
        Kind::MachinePool
    } else {
        deployment_kind(from)
    };
    format!("{kind} {} does not exist", s.name())
}

fn names_are_free(s: &Snapshot, way: MigrationDirection, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let (from, to) = (way.from(), way.to());
    let set = s.set_of(from).and_then(|set| s.find(set_kind(to), set.name()));
    let machines = members.iter().flat_map(|member| match to {
        MigrationSide::ClusterApi | MigrationSide::OtherProvider => {
            [member.infra, s.find(machine_kind(to), member.name)]
        }
        MigrationSide::MachineController => [None, None],
    });
    let mut taken = s.deployment_of(to).into_iter().chain(set).chain(machines.flatten());
    match taken.find(|object| !object.is_of_migration(s.name())) {
        Some(object) => Err(format!("{} exists: rename or delete it", object.id())),
        None => Ok("the names are free on the other side".to_owned()),
    }
}

fn health_checks(s: &Snapshot, to: MigrationSide) -> CheckVerdict {
    if to != MigrationSide::MachineController {
        return Ok("MCM has none".to_owned());
    }
    let own: Vec<&str> = s
        .members_of(MigrationSide::ClusterApi)
        .iter()
        .filter_map(|member| member.machine)
        .map(UnstructuredObject::name)
        .collect();
    for check in to_native::health_checks(s) {
        let mut others = s.all(Kind::CapiMachine).filter(|machine| !own.contains(&machine.name()));
        if let Some(other) = others.find(|machine| to_native::is_selected(check, machine)) {
            return Err(format!("{} also selects {}: create one for this deployment only", check.id(), other.id()));
        }
    }
    Ok("they select machines of this deployment only".to_owned())
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
        MigrationDirection::FromNative if s.unit.is_lone() => lone::to_capi_of(s),
        MigrationDirection::ToNative if s.unit.is_lone() => lone::to_native_of(s),
        MigrationDirection::FromNative => to_capi::converted(s),
        MigrationDirection::ToNative => to_native::converted(s),
        MigrationDirection::FromStandIn => ConversionResult::default(),
        MigrationDirection::FromOther => swap::class_made(s),
        MigrationDirection::ToOther => swap::template_made(s),
    }
}

/// Later machines need bootstrap data, and the provider needs a template.
fn boots(s: &Snapshot, way: MigrationDirection, objects: &[Value]) -> CheckVerdict {
    let (kind, of_machine) = match s.unit.is_lone() {
        true => (Kind::CapiMachine, "/spec"),
        false => (Kind::CapiDeployment, "/spec/template/spec"),
    };
    if way == MigrationDirection::ToNative {
        let path = format!("{of_machine}/bootstrap/dataSecretName");
        let secret = s.root_of(way.from()).map(|one| one.text(&path));
        let secret = secret.unwrap_or_default();
        return match s.find(Kind::Secret, secret) {
            Some(_) => Ok(format!("from Secret {secret}")),
            None => Err(format!("Secret {secret} does not exist")),
        };
    }
    let made = objects.iter().find(|object| Kind::from_value(object) == Some(kind));
    let spec = made.and_then(|one| one.pointer(of_machine)).cloned().unwrap_or_default();
    let reference = &spec["infrastructureRef"];
    let is_of_mcm = ["MCMMachineTemplate", "MCMMachine"].iter().any(|kind| reference["kind"] == *kind);
    if !is_of_mcm || reference["apiGroup"] != INFRASTRUCTURE_GROUP {
        return Err(format!("its template is a {} of another provider", reference["kind"]));
    }
    let name = spec["bootstrap"]["dataSecretName"].as_str().unwrap_or_default();
    let is_made =
        |object: &&Value| Kind::from_value(object) == Some(Kind::Secret) && object["metadata"]["name"] == name;
    if objects.iter().any(|object| is_made(&object)) || s.find(Kind::Secret, name).is_some() {
        return Ok(format!("from Secret {name}"));
    }
    Err(format!("create Secret {name} of type {} with the bootstrap data as value", names::SECRET_TYPE))
}
