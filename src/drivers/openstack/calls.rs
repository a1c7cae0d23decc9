//! The calls of Nova, Neutron, Cinder and Octavia: nothing is decided here.

use mcm_driver::{
    DriverError,
    cloud::{CloudFailure, PageCollector, RestCall},
};
use reqwest::{Method, Url};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    account::Region,
    keystone::Service,
    octavia::{Member, Progress, ShownPool},
    parts::{AddressPair, Port, Volume},
    server::Server,
};

/// Entries of a page. Clouds may send fewer, and name the next page all the same.
const PAGE: &str = "500";

/// A resource of which only ID and name count.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Resource {
    pub id: String,
    pub name: Option<String>,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

impl Region {
    /// The servers of the project whose names match a regular expression; all without one.
    pub async fn servers(&self, names: Option<&str>) -> Result<Vec<Server>, DriverError> {
        let names = names.map(|names| ("name", names));
        let query: Vec<_> = names.into_iter().chain([("limit", PAGE)]).collect();
        self.list(Service::Compute, &["servers", "detail"], &query, "servers").await
    }

    /// The server with an ID. `None` if Nova reports it absent.
    pub async fn server(&self, id: &str) -> Result<Option<Server>, DriverError> {
        let found: Option<Server> = self.one(Service::Compute, &["servers", id], "server").await?;
        Ok(found.filter(Server::exists))
    }

    /// Creates a server; returns its ID. The request has no idempotency token, so it is repeated only if it certainly had no
    /// effect.
    pub async fn create_server(&self, order: Value) -> Result<String, CloudFailure> {
        #[derive(Deserialize)]
        struct Created {
            server: Identified,
        }
        #[derive(Deserialize)]
        struct Identified {
            id: String,
        }
        let call = RestCall::write(Service::Compute.name(), Method::POST, &["servers"]).with(order);
        let created: Created = self.call(Service::Compute, &call).await?;
        Ok(created.server.id)
    }

    /// Deletes a server, which Nova carries out after its answer.
    pub async fn delete_server(&self, id: &str) -> Result<(), DriverError> {
        self.delete(Service::Compute, &["servers", id]).await
    }

    /// Sets some metadata of a server; others stay.
    pub async fn set_metadata(&self, id: &str, metadata: Map<String, Value>) -> Result<(), DriverError> {
        let path = ["servers", id, "metadata"];
        let call = RestCall::write(Service::Compute.name(), Method::POST, &path).with(json!({"metadata": metadata}));
        let done: Result<Value, _> = self.call(Service::Compute, &call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("the change of the metadata of server {id}")))
    }

    pub async fn delete_metadata(&self, id: &str, key: &str) -> Result<(), DriverError> {
        self.delete(Service::Compute, &["servers", id, "metadata", key]).await
    }

    /// All ports with a value of a field.
    pub async fn ports(&self, field: &str, value: &str) -> Result<Vec<Port>, DriverError> {
        self.list(Service::Network, &["ports"], &[(field, value)], "ports").await
    }

    pub async fn create_port(&self, order: Value) -> Result<Port, CloudFailure> {
        #[derive(Deserialize)]
        struct Created {
            port: Port,
        }
        let call = RestCall::write(Service::Network.name(), Method::POST, &["ports"]).with(order);
        let created: Created = self.call(Service::Network, &call).await?;
        Ok(created.port)
    }

    /// Replaces the tags of a port.
    pub async fn tag_port(&self, id: &str, tags: &[&str]) -> Result<(), DriverError> {
        let path = ["ports", id, "tags"];
        let call = RestCall::write(Service::Network.name(), Method::PUT, &path).with(json!({"tags": tags}));
        let done: Result<Value, _> = self.call(Service::Network, &call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("the change of the tags of port {id}")))
    }

    /// Replaces the addresses that a port may send from.
    pub async fn set_pairs(&self, id: &str, pairs: &[AddressPair]) -> Result<(), DriverError> {
        let path = ["ports", id];
        let body = json!({"port": {"allowed_address_pairs": pairs}});
        let call = RestCall::write(Service::Network.name(), Method::PUT, &path).with(body);
        let done: Result<Value, _> = self.call(Service::Network, &call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("the change of the address pairs of port {id}")))
    }

    pub async fn delete_port(&self, id: &str) -> Result<(), DriverError> {
        self.delete(Service::Network, &["ports", id]).await
    }

    /// All volumes with a name.
    pub async fn volumes(&self, name: &str) -> Result<Vec<Volume>, DriverError> {
        self.list(Service::BlockStorage, &["volumes", "detail"], &[("name", name)], "volumes").await
    }

    pub async fn volume(&self, id: &str) -> Result<Option<Volume>, DriverError> {
        self.one(Service::BlockStorage, &["volumes", id], "volume").await
    }

    pub async fn create_volume(&self, order: Value) -> Result<Volume, CloudFailure> {
        #[derive(Deserialize)]
        struct Created {
            volume: Volume,
        }
        let call = RestCall::write(Service::BlockStorage.name(), Method::POST, &["volumes"]).with(order);
        let created: Created = self.call(Service::BlockStorage, &call).await?;
        Ok(created.volume)
    }

    /// Deletes a volume, which Cinder carries out after its answer.
    pub async fn delete_volume(&self, id: &str) -> Result<(), DriverError> {
        self.delete(Service::BlockStorage, &["volumes", id]).await
    }

    /// A pool of Octavia. `None` if Octavia reports it absent.
    pub async fn pool(&self, id: &str) -> Result<Option<ShownPool>, DriverError> {
        self.one(Service::LoadBalancer, &["lbaas", "pools", id], "pool").await
    }

    pub async fn load_balancer(&self, id: &str) -> Result<Option<Progress>, DriverError> {
        self.one(Service::LoadBalancer, &["lbaas", "loadbalancers", id], "loadbalancer").await
    }

    /// All members of a pool.
    pub async fn members(&self, pool: &str) -> Result<Vec<Member>, DriverError> {
        let path = ["lbaas", "pools", pool, "members"];
        self.list(Service::LoadBalancer, &path, &[("limit", PAGE)], "members").await
    }

    /// Adds a member to a pool, which Octavia carries out after its answer.
    pub async fn add_member(&self, pool: &str, member: Value) -> Result<(), DriverError> {
        let path = ["lbaas", "pools", pool, "members"];
        self.change_member(Method::POST, &path, member, &format!("the addition of a member to pool {pool}")).await
    }

    pub async fn rename_member(&self, pool: &str, id: &str, name: &str) -> Result<(), DriverError> {
        let path = ["lbaas", "pools", pool, "members", id];
        self.change_member(Method::PUT, &path, json!({"name": name}), &format!("the change of member {id}")).await
    }

    async fn change_member(&self, method: Method, path: &[&str], member: Value, what: &str) -> Result<(), DriverError> {
        let call = RestCall::write(Service::LoadBalancer.name(), method, path).with(json!({"member": member}));
        let done: Result<Value, _> = self.call(Service::LoadBalancer, &call).await;
        // It is the subnet or the member that is not found: the pool was.
        done.map(drop).map_err(|failure| failure.error_of_creation(what, &self.secret))
    }

    /// Removes a member from a pool, which Octavia carries out after its answer.
    pub async fn remove_member(&self, pool: &str, id: &str) -> Result<(), DriverError> {
        self.delete(Service::LoadBalancer, &["lbaas", "pools", pool, "members", id]).await
    }

    /// All entries of a list, page by page.
    pub async fn list<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &[&str],
        query: &[(&str, &str)],
        field: &str,
    ) -> Result<Vec<T>, DriverError> {
        let what = format!("the list of {field}");
        let mut pages = PageCollector::new(&*what);
        loop {
            let marker = pages.token().map(str::to_owned);
            let marker = marker.as_deref().map(|marker| ("marker", marker));
            let query: Vec<_> = query.iter().copied().chain(marker).collect();
            let call = RestCall::read(service.name(), Method::GET, path).query(&query);
            let page = self.call::<Value>(service, &call).await;
            let page = page.map_err(|failure| self.error(&failure, &what))?;
            let (items, next) =
                page_of(page, field).ok_or_else(|| self.error(&CloudFailure::Unreadable(200), &what))?;
            if pages.add(items, next)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// A resource, below the name of its kind. `None` if the service reports it absent.
    pub async fn one<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &[&str],
        field: &str,
    ) -> Result<Option<T>, DriverError> {
        let what = format!("a look at {}", path.join("/"));
        let call = RestCall::read(service.name(), Method::GET, path);
        let found = CloudFailure::found(self.call::<Value>(service, &call).await);
        let read = found.and_then(|found| {
            let one = found.map(|mut found| serde_json::from_value(found[field].take()));
            one.transpose().map_err(|_| CloudFailure::Unreadable(200))
        });
        read.map_err(|failure| self.error(&failure, &what))
    }

    /// Deletes a resource; one that is not there is deleted.
    async fn delete(&self, service: Service, path: &[&str]) -> Result<(), DriverError> {
        let what = format!("the deletion of {}", path.join("/"));
        let call = RestCall::write(service.name(), Method::DELETE, path);
        let failure = match CloudFailure::found(self.answer(service, &call).await) {
            Ok(None) => return Ok(()),
            Ok(Some(answer)) if answer.text.trim().is_empty() => return Ok(()),
            // A page of something else is not the answer of a deletion.
            Ok(Some(answer)) => CloudFailure::Unreadable(answer.status),
            Err(failure) => failure,
        };
        Err(self.error(&failure, &what))
    }
}

/// The entries of a page, and the marker of the next one. `None` if it is no such page.
fn page_of<T: DeserializeOwned>(mut page: Value, field: &str) -> Option<(Vec<T>, Option<String>)> {
    let items = serde_json::from_value(page.get_mut(field)?.take()).ok()?;
    let links: Vec<Link> = match page.get_mut(format!("{field}_links")) {
        None => Vec::new(),
        Some(links) => serde_json::from_value(links.take()).ok()?,
    };
    let Some(next) = links.into_iter().find(|link| link.rel == "next") else { return Some((items, None)) };
    // The host of the link may be another one than that of the endpoint, so only its marker counts.
    let url = Url::parse(&next.href).ok()?;
    let marker = url.query_pairs().find(|(key, _)| key == "marker").map(|(_, marker)| marker.into_owned())?;
    Some((items, Some(marker)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    type Page = Option<(Vec<Resource>, Option<String>)>;

    fn all(ids: &[&str]) -> Vec<Resource> {
        ids.iter().map(|id| Resource { id: (*id).to_owned(), name: None }).collect()
    }

    #[rstest]
    #[case::last(json!({"servers": [{"id": "a"}]}), Some((all(&["a"]), None)))]
    #[case::next(
        json!({"servers": [{"id": "a"}], "servers_links": [{"rel": "next", "href": "http://10.0.0.1/servers?limit=1&marker=a"}]}),
        Some((all(&["a"]), Some("a".to_owned()))),
    )]
    #[case::empty(json!({"servers": []}), Some((vec![], None)))]
    #[case::no_marker(json!({"servers": [], "servers_links": [{"rel": "next", "href": "http://10.0.0.1/servers"}]}), None)]
    #[case::no_list(json!({"other": []}), None)]
    #[case::entry_without_an_id(json!({"servers": [{"name": "a"}]}), None)]
    fn a_page_is_read_whole_or_not_at_all(#[case] page: Value, #[case] expected: Page) {
        assert_eq!(page_of(page, "servers"), expected);
    }
}
