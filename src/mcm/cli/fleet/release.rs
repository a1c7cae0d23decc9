//! `mcm fleet release`: frees the Leases of a control plane that dead replicas hold.
//!
//! A replica that renews its Lease takes the claims of others over by itself, and would be fenced too late by this command. So nothing
//! is freed while one does. The Lease of a dead replica is emptied before its claims, as replicas do it: if it is not dead, it can
//! renew no more, and of both writes the API server refuses the second.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::{Instant, sleep};

use super::members::{self, MemberLeases, holder};
use crate::cli::{
    exit::{CommandAnswer, CommandExit, ExitError},
    reading::{ClusterOptions, ContextOptions},
    verbs,
};
use mcm_controllers::{MACHINES, SETS};
use mcm_runtime::{
    dated::DatedObject,
    members::{EXPELLED_AFTER, LOOK, MemberIdentity},
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct ReleaseOptions {
    /// Namespace of the control plane
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// Accept that replicas were killed; it takes 16s to see that none of them renews its Lease
    #[arg(long)]
    dead: bool,
    /// Kubeconfig of the control cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    context: ContextOptions,
    /// Let the API server check the change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short = 'y', long)]
    yes: bool,
}

/// Frees the Leases of a control plane.
///
/// # Errors
/// A replica lives, or was killed and `--dead` is not given; or a Lease cannot be read or written.
pub(super) async fn run(options: ReleaseOptions) -> Result<CommandAnswer> {
    let ReleaseOptions { namespace, dead, kubeconfig, context, dry_run, yes } = options;
    let cluster = ClusterOptions { namespace: Some(namespace.clone()), kubeconfig, context };
    let (client, _, place) = verbs::connect(&cluster).await?;
    let leases = held_leases(&client, &namespace).await?;
    if leases.is_empty() {
        let text =
            format!("no Lease of namespace {namespace} has a holder: there is nothing to release\nnext: mcm fleet\n");
        return Ok(CommandAnswer { text, exit: CommandExit::Good });
    }
    let claims = claims(leases);
    let fleets = fleets(&namespace, &claims)?;
    let change = format!("{} will have no holder", names(&claims, &namespace));
    let question = (!dry_run && !yes).then(|| format!("{change} (cluster {place})"));
    if let (Some(question), true) = (&question, dead) {
        verbs::can_be_confirmed(question)?;
    }
    let mut silent = Vec::new();
    for fleet in fleets {
        silent.extend(silent_members(&client, &fleet, &claims, dead).await?);
    }
    if let Some(question) = &question {
        verbs::confirmed(question, "")?;
    }
    for lease in silent.iter().chain(&claims) {
        empty(&client, lease, dry_run).await?;
    }
    let text = match dry_run {
        true => format!("{change}\ndry run: the API server accepts the change, and nothing was changed\n"),
        false => format!("{}\nnext: mcm fleet\n", outcome(&claims, &namespace)),
    };
    Ok(CommandAnswer { text, exit: CommandExit::Good })
}

fn names(claims: &[Lease], namespace: &str) -> String {
    let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    format!("{} of namespace {namespace}", names.join(" and "))
}

/// The state after the release, in words.
fn outcome(claims: &[Lease], namespace: &str) -> String {
    let has = if claims.len() == 1 { "has" } else { "have" };
    format!("{} {has} no holder", names(claims, namespace))
}

/// The Leases of a control plane that have a holder.
async fn held_leases(client: &Client, namespace: &str) -> Result<Vec<Lease>> {
    let api: Api<DatedObject<Lease>> = Api::namespaced(client.clone(), namespace);
    let mut held = Vec::new();
    for role in [SETS, MACHINES] {
        let read = api.get_opt(role.lease).await;
        let lease = read.with_context(|| format!("get Lease {namespace}/{}", role.lease))?;
        held.extend(lease.map(|lease| lease.0).filter(|lease| !holder(lease).is_empty()));
    }
    Ok(held)
}

/// The Leases that replicas of a fleet hold.
fn claims(leases: Vec<Lease>) -> Vec<Lease> {
    leases.into_iter().filter(|lease| MemberIdentity::parse(holder(lease)).is_some()).collect()
}

/// A fleet: the namespace of its Leases, and their name without the part of one replica.
type FleetPlace = (String, String);

fn fleets(namespace: &str, claims: &[Lease]) -> Result<Vec<FleetPlace>, ExitError> {
    let place = |lease: &Lease| {
        let member = MemberIdentity::parse(holder(lease))?;
        let (prefix, _) = member.lease.rsplit_once('-')?;
        Some((member.namespace.to_owned(), prefix.to_owned()))
    };
    let mut fleets: Vec<FleetPlace> = claims.iter().filter_map(place).collect();
    fleets.sort();
    fleets.dedup();
    if fleets.is_empty() {
        let message = format!("no replica of a fleet holds a Lease of namespace {namespace}");
        return Err(ExitError::no(message, "mcm fleet shows which process serves it"));
    }
    Ok(fleets)
}

/// The replicas that have not ended in an orderly way, after none of them renewed its Lease for as long as it is valid.
async fn silent_members(client: &Client, fleet: &FleetPlace, claims: &[Lease], dead: bool) -> Result<Vec<Lease>> {
    let (namespace, prefix) = fleet;
    let all = members::leases(client, Some(namespace)).await?;
    // A replica notices the deletion of its Lease at its next renewal.
    let deleted = claims.iter().find(|claim| is_member_deleted(claim, fleet, &all)).map(named);
    let first = of_fleet(all, prefix);
    let suspect = first.values().next().map(named).or(deleted);
    if let (Some(suspect), false) = (&suspect, dead) {
        let message = format!(
            "{suspect} of the fleet has not ended in an orderly way: it may live, and take the control plane over by itself"
        );
        return Err(ExitError::no(message, "if all replicas were killed, add --dead").into());
    }
    let begun = Instant::now();
    while suspect.is_some() && begun.elapsed() < EXPELLED_AFTER + LOOK {
        sleep(LOOK).await;
        let now = of_fleet(members::leases(client, Some(namespace)).await?, prefix);
        if let Some((_, lease)) = now.iter().find(|(name, lease)| is_renewed(first.get(*name), lease)) {
            let message = format!("{} of the fleet lives: it takes the control plane over by itself", named(lease));
            let hint = "end all replicas of the fleet, if another manager is to serve; or, if the namespace is no longer of the \
                        fleet, give it back its RoleBinding, and the replica releases the Leases";
            return Err(ExitError::no(message, hint).into());
        }
    }
    Ok(first.into_values().collect())
}

/// The Lease of the replica that holds a claim does not exist.
fn is_member_deleted(claim: &Lease, fleet: &FleetPlace, members: &MemberLeases) -> bool {
    MemberIdentity::parse(holder(claim)).is_some_and(|member| {
        let key = (member.namespace.to_owned(), member.lease.to_owned());
        member.namespace == fleet.0 && member.lease.starts_with(&fleet.1) && !members.contains_key(&key)
    })
}

/// The Leases of a fleet with a holder, by name.
fn of_fleet(members: MemberLeases, prefix: &str) -> BTreeMap<String, Lease> {
    let is_its = |name: &str| name.rsplit_once('-').is_some_and(|(of, _)| of == prefix);
    let held = members.into_iter().map(|((_, name), lease)| (name, lease));
    held.filter(|(name, lease)| is_its(name) && !holder(lease).is_empty()).collect()
}

fn is_renewed(before: Option<&Lease>, now: &Lease) -> bool {
    before.is_none_or(|before| before.metadata.resource_version != now.metadata.resource_version)
}

fn named(lease: &Lease) -> String {
    let holder = holder(lease);
    let host = MemberIdentity::parse(holder).map_or(holder, |member| member.host);
    format!("replica {host} (Lease {}/{})", lease.namespace().unwrap_or_default(), lease.name_any())
}

/// Empties the holder of a Lease in the version that was read.
async fn empty(client: &Client, lease: &Lease, dry_run: bool) -> Result<()> {
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let api: Api<DatedObject<Lease>> = Api::namespaced(client.clone(), &namespace);
    let mut emptied = lease.clone();
    emptied.spec.get_or_insert_default().holder_identity = Some(String::new());
    let params = PostParams { dry_run, ..PostParams::default() };
    match api.replace(&name, &params, &DatedObject(emptied)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let message = format!("Lease {namespace}/{name} was renewed meanwhile: its holder lives");
            Err(ExitError::no(message, "mcm fleet shows which process serves the control plane").into())
        }
        Err(error) => Err(error).with_context(|| format!("empty the holder of Lease {namespace}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, version: &str) -> Lease {
        let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"holderIdentity": holder}})).unwrap()
    }

    fn member(slot: &str) -> String {
        format!("pod@system/mcm-fleet-one-{slot}_0123456789abcdef0123456789abcdef")
    }

    #[test]
    fn the_fleets_of_claims_are_named_once_and_a_go_program_is_left_alone() {
        let held = claims(vec![
            lease("machine-controller", &member("0000000a"), "1"),
            lease("machine-controller-manager", &member("0000000b"), "1"),
        ]);
        assert_eq!(fleets("n", &held).unwrap(), [("system".to_owned(), "mcm-fleet-one".to_owned())]);
        let refused = fleets("n", &claims(vec![lease("machine-controller", "go-pod", "1")])).unwrap_err();
        assert_eq!(refused.message, "no replica of a fleet holds a Lease of namespace n");
    }

    #[test]
    fn the_released_leases_are_named() {
        let both = ["machine-controller-manager", "machine-controller"].map(|name| lease(name, "", "1"));
        let text = "machine-controller-manager and machine-controller of namespace n have no holder";
        assert_eq!(outcome(&both, "n"), text);
        assert_eq!(outcome(&both[1..], "n"), "machine-controller of namespace n has no holder");
    }

    #[test]
    fn only_leases_of_the_fleet_that_have_a_holder_count() {
        let all = [
            ("mcm-fleet-one-0000000a", member("0000000a")),
            ("mcm-fleet-one-0000000b", String::new()),
            ("mcm-fleet-one-two-0000000c", member("0000000c")),
        ];
        let all = all.map(|(name, holder)| (("system".to_owned(), name.to_owned()), lease(name, &holder, "1")));
        let held: Vec<String> = of_fleet(all.into(), "mcm-fleet-one").into_keys().collect();
        assert_eq!(held, ["mcm-fleet-one-0000000a"]);
    }

    #[test]
    fn a_renewal_or_a_new_replica_is_a_sign_of_life() {
        let before = lease("a", "x", "1");
        assert!(!is_renewed(Some(&before), &lease("a", "x", "1")));
        assert!(is_renewed(Some(&before), &lease("a", "x", "2")));
        assert!(is_renewed(None, &lease("a", "x", "1")));
        assert_eq!(named(&lease("l", &member("0000000a"), "1")), "replica pod (Lease n/l)");
    }
}
