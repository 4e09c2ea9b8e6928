/* Constants of mathematics that several kernels need, in the nearest double. */
#ifndef CAVITY_CONSTANTS_H
#define CAVITY_CONSTANTS_H

#define CV_LOG_2 0.6931471805599453
#define CV_LOG_2PI 1.8378770664093453
#define CV_HALF_LOG_2PI 0.9189385332046727
#define CV_INV_2PI 0.15915494309189535
#define CV_INV_SQRT_2PI 0.3989422804014327

#endif
