use std::collections::BTreeMap;

use super::{
    Server, Snapshot,
    apply::{Probes, Session},
};

impl Probes {
    pub(super) fn snapshot(&self, session: &Session) -> Snapshot {
        let mut servers = BTreeMap::new();
        if self.targets.exist() {
            let targets = self.targets.all().into_iter().map(|target| Server::Target(target.id.to_string()));
            servers.extend(targets.chain([Server::Control]).map(|server| {
                let health = self.servers.health_of(&server);
                (server, health)
            }));
        }
        Snapshot { servers, probed: session.probed.clone(), now: self.clock.now() }
    }
}
