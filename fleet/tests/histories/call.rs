//! Operations as values, so one history can run on several stores.

use std::collections::BTreeMap;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use runner_fleet::{
    Claim, ClaimRequest, Declined, Deliverable, Delivery, FleetError, FleetStore, HostInfo,
    HostState, Lease, Offer, Release, Verdict,
};
use serde_json::json;

/// One operation.
#[derive(Clone, Debug)]
pub enum Call {
    Join(HostInfo),
    HostState(String, HostState),
    Offer(Offer),
    Claim(ClaimRequest),
    Renew { occurrence: String, fence: i64, worker: String },
    Deliver(Delivery),
    Release(Release),
    Deliveries(String),
    BeginPublish { occurrence: String, fence: i64, home: String },
    Settle { occurrence: String, fence: i64, home: String, outcome: Outcome },
    Reopen { occurrence: String, fence: i64, home: String },
    Cancel { occurrence: String, home: String },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Done,
    Id(String),
    Claims(Vec<Claim>, Vec<Declined>),
    Lease(Lease),
    Verdict(Verdict),
    Deliveries(Vec<Deliverable>),
    Refused(String),
}

impl Reply {
    pub fn is_ok(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Runs an operation. Any error other than a rejection fails the test.
pub fn run(store: &mut dyn FleetStore, call: &Call) -> Reply {
    let done = match call.clone() {
        Call::Join(host) => store.join(&host).map(|()| Reply::Done),
        Call::HostState(host, state) => store.set_host_state(&host, state).map(|()| Reply::Done),
        Call::Offer(offer) => store.offer(&offer).map(Reply::Id),
        Call::Claim(request) => store.claim(&request).map(|(all, not)| Reply::Claims(all, not)),
        Call::Renew { occurrence, fence, worker } => {
            store.renew(&occurrence, fence, &worker).map(Reply::Lease)
        }
        Call::Deliver(delivery) => store.deliver(&delivery).map(Reply::Verdict),
        Call::Release(release) => store.release(&release).map(|()| Reply::Done),
        Call::Deliveries(home) => store.deliveries(&home).map(Reply::Deliveries),
        Call::BeginPublish { occurrence, fence, home } => {
            store.begin_publish(&occurrence, fence, &home).map(|()| Reply::Done)
        }
        Call::Settle { occurrence, fence, home, outcome } => {
            store.settle(&occurrence, fence, &home, &outcome).map(|()| Reply::Done)
        }
        Call::Reopen { occurrence, fence, home } => {
            store.reopen(&occurrence, fence, &home, "nothing was published").map(|()| Reply::Done)
        }
        Call::Cancel { occurrence, home } => {
            store.cancel(&occurrence, &home, "a person").map(|()| Reply::Done)
        }
    };
    match done {
        Ok(reply) => reply,
        Err(refused @ (FleetError::Stale(_) | FleetError::NotJoined(_))) => {
            Reply::Refused(refused.to_string())
        }
        Err(error) => panic!("{call:?}: {error}"),
    }
}

pub const LEASE: i64 = 60_000;

/// Returns an offer with two budget levels.
pub fn offer(id: &str, key: &str, home: &str) -> Offer {
    Offer {
        id: id.to_owned(),
        project: "p".to_owned(),
        job: "dream".to_owned(),
        key: key.to_owned(),
        home: home.to_owned(),
        due: 0,
        group: None,
        tags: Vec::new(),
        levels: BTreeMap::from([
            ("day".to_owned(), Budget { tokens: Some(400), ..Budget::default() }),
            ("job".to_owned(), Budget { calls: Some(40), ..Budget::default() }),
        ]),
        want: Amounts { calls: 2, tokens: 20, ..Amounts::default() },
        lease: LEASE,
        most_lost: 3,
        source: json!({"commit": key}),
    }
}

pub fn host(name: &str, boot: u32) -> HostInfo {
    HostInfo {
        host: name.to_owned(),
        worker: format!("{name}.{boot}"),
        tags: vec!["linux".to_owned(), name.to_owned()],
        version: "0.1.0".to_owned(),
    }
}

pub fn request(host: &HostInfo, most: u32) -> ClaimRequest {
    ClaimRequest {
        host: host.host.clone(),
        worker: host.worker.clone(),
        tags: host.tags.clone(),
        most,
        home: None,
    }
}

pub fn delivery(claim: &Claim, worker: &str, used: Amounts) -> Delivery {
    Delivery {
        occurrence: claim.occurrence.clone(),
        fence: claim.fence,
        worker: worker.to_owned(),
        outcome: Outcome::Succeeded,
        used,
        summary: json!({"headline": claim.key}),
        manifest: json!([{"target": claim.key, "fence": claim.fence}]),
    }
}
