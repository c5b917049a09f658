import SwiftASN1
import X509
import NIOSSL
import NIOPosix
let APNSGatewayPlaceholder = 0
