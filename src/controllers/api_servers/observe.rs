use std::collections::BTreeMap;

use super::{
    ApiServerId, Snapshot,
    apply::{ApiServerProber, ProbeSession},
};
use mcm_runtime::reconcile::SnapshotReader;

impl SnapshotReader for ApiServerProber {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ProbeSession;

    fn observe(&self, _: &&'static str, (): &(), session: &ProbeSession) -> Option<Snapshot> {
        let mut servers = BTreeMap::new();
        if self.targets.exist() {
            let targets = self.targets.all().into_iter().map(|target| ApiServerId::Target(target.id.to_string()));
            servers.extend(targets.chain([ApiServerId::Control]).map(|server| {
                let health = self.servers.health_of(&server);
                (server, health)
            }));
        }
        Some(Snapshot { probing: self.probing, servers, probed: session.probed.clone(), now: self.clock.now() })
    }
}
