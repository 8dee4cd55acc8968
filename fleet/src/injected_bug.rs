//! The bugs that tests inject into a simulation to show that the random histories detect them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InjectedBug {
    /// A delivery is accepted with any fence.
    DeliverIgnoresFence,
    /// A delivery is accepted after the lease has ended.
    DeliverIgnoresLease,
    /// A publication may begin with any fence.
    PublishIgnoresFence,
    /// A publication may begin before a delivery.
    PublishIgnoresState,
    /// A new claim keeps the fence of the dead one.
    ClaimKeepsFence,
    /// A claim is taken over even though its lease has not expired.
    ClaimIgnoresLease,
    /// A dead claim costs nothing.
    DeadClaimIsFree,
    /// A repeated delivery is charged again.
    RepeatIsCharged,
    /// A late result is charged in full, in addition to the dead claim.
    LateIsChargedTwice,
    /// A release keeps its reservation.
    ReleaseKeepsReservation,
    /// A claim reserves budget only at the first level.
    OneLevelReserved,
    /// A repeated offer adds another occurrence.
    OfferRepeats,
    /// A claim does not count the live claims of its group.
    GroupIgnored,
    /// A released occurrence is never claimable again.
    ReleaseForgets,
    /// A publication may be reopened after it was settled.
    ReopenIgnoresState,
    /// A late result replaces the state of the occurrence.
    LateIsApplied,
    /// A host that is draining or has left still receives work.
    DrainIgnored,
    /// A claim ignores the tags that the occurrence requires.
    TagsIgnored,
}

impl InjectedBug {
    pub const ALL: [Self; 18] = [
        Self::DeliverIgnoresFence,
        Self::DeliverIgnoresLease,
        Self::PublishIgnoresFence,
        Self::PublishIgnoresState,
        Self::ClaimKeepsFence,
        Self::ClaimIgnoresLease,
        Self::DeadClaimIsFree,
        Self::RepeatIsCharged,
        Self::LateIsChargedTwice,
        Self::ReleaseKeepsReservation,
        Self::OneLevelReserved,
        Self::OfferRepeats,
        Self::GroupIgnored,
        Self::ReleaseForgets,
        Self::ReopenIgnoresState,
        Self::LateIsApplied,
        Self::DrainIgnored,
        Self::TagsIgnored,
    ];
}
