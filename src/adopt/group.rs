//! The Auto Scaling group of an AWSMachinePool. mcm changes no group: its user does, with the commands that a plan names, and a
//! migration continues once the cloud shows the result.

use std::collections::BTreeSet;

use super::{
    MachineObjects, MigrationDirection, Snapshot,
    step::{RemainingWork, each, expect, wait},
    swap,
};
use mcm_conversion::provider_id;
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
    settle(s, ("to leave", detach), |recorded, members| recorded.intersection(members).cloned().collect())
}

/// Undoes [`leave`]. A VM that ended cannot join; the group replaces it after its provider was unpaused.
pub fn joined(s: &Snapshot) -> RemainingWork {
    let ended: BTreeSet<String> = ended(s).iter().map(MachineObjects::vm).collect();
    settle(s, ("to join", attach), |recorded, members| {
        recorded.difference(members).filter(|id| !ended.contains(*id)).cloned().collect()
    })
}

/// The recorded machines whose VMs ended.
fn ended(s: &Snapshot) -> Vec<MachineObjects<'_>> {
    let Some(cloud) = &s.cloud else { return Vec::new() };
    s.recorded().filter(|member| cloud.lacks(member)).collect()
}

/// The migration stops without a VM that ended: after it is undone, the owner of the machines replaces it.
fn complete(s: &Snapshot, todo: RemainingWork) -> RemainingWork {
    todo.and(each(ended(s), |member| {
        wait(format!("VM {}, which ended: undo the migration with mcm adopt abort", member.name))
    }))
}

/// A change of the group, and its commands for some VMs.
type GroupChange = (&'static str, fn(&Snapshot, &BTreeSet<String>) -> Vec<String>);

/// Waits for a change of the members. A member without a record was started by the group meanwhile.
fn settle(
    s: &Snapshot,
    (how, commands): GroupChange,
    select: impl FnOnce(&BTreeSet<String>, &BTreeSet<String>) -> BTreeSet<String>,
) -> RemainingWork {
    let recorded: BTreeSet<String> = s.recorded().map(|member| member.vm()).collect();
    if recorded.is_empty() {
        return RemainingWork::default();
    }
    let group = format!("Auto Scaling group {}", name(s));
    let todo = match members(s) {
        None => wait("a response of the cloud"),
        Some(Err(error)) => wait(format!("the members of {group}, which cannot be listed: {error}")),
        Some(Ok(members)) => {
            let ids = select(&recorded, &members);
            let (shown, commands) = (instances(&ids).join(", "), commands(s, &ids).join("; "));
            let changed = expect(ids.is_empty(), format!("{shown} {how} {group}; run: {commands}"));
            let strangers = instances(&members.difference(&recorded).cloned().collect());
            changed.and(each(strangers, |stranger| {
                let command = format!(
                    "aws autoscaling terminate-instance-in-auto-scaling-group{} --instance-id {} \
                     --should-decrement-desired-capacity",
                    region(s),
                    word(&stranger)
                );
                wait(format!("{stranger}, which {group} started meanwhile, to be deleted; run: {command}"))
            }))
        }
    };
    RemainingWork { asks_cloud: true, ..todo }
}

/// The identities of the VMs in the group, or the text of an error; `None` if the cloud was not read.
pub fn members(s: &Snapshot) -> Option<Result<BTreeSet<String>, &String>> {
    let members = s.cloud.as_ref()?.members.as_ref()?.as_ref();
    Some(members.map(|ids| ids.iter().map(|id| provider_id::identity(id)).collect()))
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
