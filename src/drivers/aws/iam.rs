//! The call of IAM: `GetInstanceProfile`.

use std::sync::Arc;

use super::{
    endpoint::iam_of,
    kind::reading,
    login::Login,
    query::{Place, Query, Service},
};
use mcm_driver::cloud::{AccountLimiters, CloudFailure, HttpClient};

const SERVICE: Service = Service { name: "iam", version: "2010-05-08" };

/// IAM of an account.
pub(super) struct Iam {
    region: &'static str,
    url: String,
    query: Query,
}

impl Iam {
    /// At an endpoint, or at that of AWS for a region.
    pub(super) fn new(
        region: &str,
        endpoint: Option<&String>,
        login: &Arc<Login>,
        limiters: &Arc<AccountLimiters>,
        http: &Arc<HttpClient>,
    ) -> Self {
        let (region, url) = iam_of(region);
        let url = endpoint.cloned().unwrap_or_else(|| url.to_owned());
        Self { region, url, query: Query::new(SERVICE, login, limiters, http) }
    }

    /// Reads an instance profile by its name.
    ///
    /// # Errors
    /// [`Failure::Named`] with `NoSuchEntity`: it does not exist.
    pub(super) async fn instance_profile(&self, name: &str) -> Result<(), CloudFailure> {
        let place = Place { region: self.region, url: &self.url };
        let kind = reading("instance_profile_get");
        self.query.call(place, kind, "GetInstanceProfile", &[("InstanceProfileName", name)]).await.map(drop)
    }
}
