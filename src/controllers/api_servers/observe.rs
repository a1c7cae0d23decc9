use std::collections::BTreeMap;

use super::{
    Server, Snapshot,
    apply::{Probes, Session},
};
use mcm_runtime::reconcile::Observe;

impl Observe for Probes {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = Session;

    fn observe(&self, _: &&'static str, (): &(), session: &Session) -> Option<Snapshot> {
        let mut servers = BTreeMap::new();
        if self.targets.exist() {
            let targets = self.targets.all().into_iter().map(|target| Server::Target(target.id.to_string()));
            servers.extend(targets.chain([Server::Control]).map(|server| {
                let health = self.servers.health_of(&server);
                (server, health)
            }));
        }
        Some(Snapshot { probing: self.probing, servers, probed: session.probed.clone(), now: self.clock.now() })
    }
}
