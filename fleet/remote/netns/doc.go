// Package netns builds hosts for tests: network namespaces with an OpenSSH server each.
//
// It promises n hosts and a jump host that share a network which ends with the test, each with
// an account for root and one for an ordinary user, a link that can be cut, and no change to
// this machine's accounts or addresses beyond what the test removes again. It needs root, ip of
// iproute2 and sshd, and skips the test where one is missing, unless NARWHAL_REQUIRE_NETNS=1.
package netns
