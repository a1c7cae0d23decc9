//! The Auto Scaling group of an AWSMachinePool. mcm changes no group: its user does, with the commands that a plan names, and a
//! migration continues once the cloud shows the result.

use std::collections::BTreeSet;

use super::{
    snapshot::{MachineObjects, Snapshot},
    step::RemainingWork,
    swap,
    way::MigrationDirection,
};
pub use mcm_conversion::provider_id;
use mcm_rules::plan::shell::word;

/// The most instances of one command: the limit of the API.
const MOST: usize = 19;

/// The commands of a migration in this direction, in order.
pub fn commands(s: &Snapshot, way: MigrationDirection) -> Vec<String> {
    let members = s.members_of(way.from());
    let ids: BTreeSet<String> = members.iter().map(MachineObjects::vm).collect();
    if way == MigrationDirection::ToOther { attach(s, &ids) } else { detach(s, &ids) }
}

/// Waits until no VM is a member.
pub fn leave(s: &Snapshot) -> RemainingWork {
    complete(s, left(s))
}

/// Waits until each VM is a member.
pub fn join(s: &Snapshot) -> RemainingWork {
    complete(s, joined(s))
}

/// Undoes [`join`], also for VMs that ended.
pub fn left(s: &Snapshot) -> RemainingWork {
    settle(s, |recorded, members| {
        let inside: BTreeSet<String> = members.intersection(recorded).cloned().collect();
        (!inside.is_empty()).then(|| ("to leave", inside.clone(), detach(s, &inside)))
    })
}

/// Undoes [`leave`]. A VM that ended cannot join; the group replaces it after its provider was unpaused.
pub fn joined(s: &Snapshot) -> RemainingWork {
    let ended: BTreeSet<String> = ended(s).iter().map(MachineObjects::vm).collect();
    settle(s, |recorded, members| {
        let outside: BTreeSet<String> =
            recorded.difference(members).filter(|id| !ended.contains(*id)).cloned().collect();
        (!outside.is_empty()).then(|| ("to join", outside.clone(), attach(s, &outside)))
    })
}

/// The recorded machines whose VMs ended.
fn ended(s: &Snapshot) -> Vec<MachineObjects<'_>> {
    let Some(cloud) = &s.cloud else { return Vec::new() };
    s.recorded().filter(|member| cloud.lacks(member)).collect()
}

/// The migration stops without a VM that ended: after it is undone, the owner of the machines replaces it.
fn complete(s: &Snapshot, mut todo: RemainingWork) -> RemainingWork {
    for member in ended(s) {
        todo.expect(false, format!("VM {}, which ended: undo the migration with mcm adopt abort", member.name));
    }
    todo
}

/// The VMs that have to change, the change, and its commands.
type GroupChange = (&'static str, BTreeSet<String>, Vec<String>);

/// Waits for a change of the members. A member without a record was started by the group meanwhile.
fn settle(
    s: &Snapshot,
    change: impl FnOnce(&BTreeSet<String>, &BTreeSet<String>) -> Option<GroupChange>,
) -> RemainingWork {
    let mut todo = RemainingWork { asks_cloud: true, ..RemainingWork::default() };
    let recorded: BTreeSet<String> = s.recorded().map(|member| member.vm()).collect();
    if recorded.is_empty() {
        return RemainingWork::default();
    }
    let group = format!("Auto Scaling group {}", name(s));
    let members = match s.cloud.as_ref().and_then(|cloud| cloud.members.as_ref()) {
        None => {
            todo.expect(false, "a response of the cloud");
            return todo;
        }
        Some(Err(error)) => {
            todo.expect(false, format!("the members of {group}, which cannot be listed: {error}"));
            return todo;
        }
        Some(Ok(members)) => members.iter().map(|id| provider_id::identity(id)).collect::<BTreeSet<String>>(),
    };
    if let Some((how, ids, commands)) = change(&recorded, &members) {
        let instances = instances(&ids).join(", ");
        todo.expect(false, format!("{instances} {how} {group}; run: {}", commands.join("; ")));
    }
    for stranger in instances(&members.difference(&recorded).cloned().collect()) {
        let command = format!(
            "aws autoscaling terminate-instance-in-auto-scaling-group{} --instance-id {} \
             --should-decrement-desired-capacity",
            region(s),
            word(&stranger)
        );
        todo.expect(false, format!("{stranger}, which {group} started meanwhile, to be deleted; run: {command}"));
    }
    todo
}

/// Without the process Launch the group starts no successor, also if its provider still wrote a capacity.
fn detach(s: &Snapshot, ids: &BTreeSet<String>) -> Vec<String> {
    let on = on(s);
    let first = [
        format!("aws autoscaling suspend-processes{on} --scaling-processes Launch"),
        format!("aws autoscaling update-auto-scaling-group{on} --min-size 0"),
    ];
    let each = |some: &[String]| {
        let some = words(some);
        format!("aws autoscaling detach-instances{on} --should-decrement-desired-capacity --instance-ids {some}")
    };
    first.into_iter().chain(instances(ids).chunks(MOST).map(each)).collect()
}

/// The group counts what it gets, so its desired capacity grows by as many.
fn attach(s: &Snapshot, ids: &BTreeSet<String>) -> Vec<String> {
    let on = on(s);
    let first = format!("aws autoscaling resume-processes{on} --scaling-processes Launch");
    let each = |some: &[String]| format!("aws autoscaling attach-instances{on} --instance-ids {}", words(some));
    std::iter::once(first).chain(instances(ids).chunks(MOST).map(each)).collect()
}

fn on(s: &Snapshot) -> String {
    format!("{} --auto-scaling-group-name {}", region(s), word(name(s)))
}

fn region(s: &Snapshot) -> String {
    let region = swap::class(s).and_then(|class| class["providerSpec"]["region"].as_str().map(str::to_owned));
    region.map(|region| format!(" --region {}", word(&region))).unwrap_or_default()
}

/// The group has the name of the pool.
fn name(s: &Snapshot) -> &str {
    swap::template_name(s)
}

fn words(some: &[String]) -> String {
    some.iter().map(|one| word(one)).collect::<Vec<_>>().join(" ")
}

fn instances(ids: &BTreeSet<String>) -> Vec<String> {
    ids.iter().map(|id| id.rsplit('/').next().unwrap_or(id).to_owned()).collect()
}
