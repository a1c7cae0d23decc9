use std::collections::BTreeMap;

use super::{Action, ApiServerId, Snapshot};
use mcm_rules::{
    plan::{Plan, PlanInput, WaitKind},
    safety::api_server::{ApiServerHealth, ProbeTiming},
};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.probing)
    }
}

/// Plans the next step: probe, store the results, wait.
pub fn plan(snapshot: &Snapshot, probing: &ProbeTiming) -> Plan<Action> {
    let mut plan = Plan::default();
    if snapshot.servers.is_empty() {
        return plan;
    }
    match &snapshot.probed {
        None => drop(plan.then(Action::Probe, "machines depend on these API servers")),
        Some((results, false)) => {
            let judge = |(server, health): (&ApiServerId, &ApiServerHealth)| {
                let health = results
                    .get(server)
                    .map_or_else(|| health.clone(), |result| health.after(result, snapshot.now, probing));
                (server.clone(), health)
            };
            let after: BTreeMap<ApiServerId, ApiServerHealth> = snapshot.servers.iter().map(judge).collect();
            let failing = after.values().filter(|health| health.failing.is_some()).count();
            plan.then(Action::Conclude(after), format!("{failing} of {} API servers do not answer", results.len()));
        }
        Some((_, true)) => {
            let pause = snapshot.servers.values().map(|health| health.next_probe(probing)).min().unwrap_or_default();
            let until = snapshot.now.checked_add(pause).ok();
            plan.wait(WaitKind::ApiServers, "the next probe of the API servers", until);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn snapshot(servers: &[ApiServerId], second: i64) -> Snapshot {
        let servers = servers.iter().map(|server| (server.clone(), ApiServerHealth::default())).collect();
        Snapshot {
            probing: ProbeTiming::default(),
            servers,
            probed: None,
            now: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn without_a_target_nothing_is_probed() {
        let plan = plan(&snapshot(&[], 0), &ProbeTiming::default());
        assert!(plan.steps.is_empty() && plan.waits.is_empty());
    }

    #[test]
    fn each_api_server_is_judged_by_its_own_probe_and_the_next_one_is_due_when_the_first_needs_it() {
        let (control, target) = (ApiServerId::Control, ApiServerId::Target("target".to_owned()));
        let mut snapshot = snapshot(&[control.clone(), target.clone()], 100);
        let next = |snapshot: &Snapshot| plan(snapshot, &ProbeTiming::default());
        assert_eq!(next(&snapshot).steps[0].action, Action::Probe);
        let results = BTreeMap::from([(control.clone(), Ok(())), (target.clone(), Err("refused".to_owned()))]);
        snapshot.probed = Some((results.clone(), false));
        let Action::Conclude(after) = next(&snapshot).steps[0].action.clone() else { panic!("no conclusion") };
        assert_eq!((after[&control].failing.is_some(), after[&target].failing.is_some()), (false, true));
        snapshot.servers = after;
        snapshot.probed = Some((results, true));
        let plan = next(&snapshot);
        assert!(plan.steps.is_empty());
        assert_eq!(plan.requeue_at().map(|at| at.as_second()), Some(106));
    }
}
